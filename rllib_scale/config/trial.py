"""One training: its problem, algorithm and network, and the checks between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from rllib_scale.config.algorithms import CMAES, DQN, PPO, SAC, AnyAlgorithm, Imitation, Reinforce
from rllib_scale.config.base import Model, Seed, digest
from rllib_scale.config.methods import METHODS, MethodSpec
from rllib_scale.config.network import AnyNetwork, CrossAttentionConfig, CustomEncoderConfig
from rllib_scale.config.pinned import without_places
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.rounds import OWN_VALUES, in_rounds, without_paper_mode
from rllib_scale.config.schedulers import DISPATCHERS, HEURISTICS, PriceParameters, RuleSpec, parse_scheduler
from rllib_scale.config.sections import MODELS, TrialSections, parts_of, places, used_settings
from rllib_scale.config.training import InEpochs, Rewarded, SRRConfig, StopConfig, TrialResources
from rllib_scale.config.used_settings import refuse_left_out
from rllib_scale.errors import choice_error, offered

TRIAL_FORMAT = 3
"""Changes when a default changes: hashes of trials and evaluations leave out settings at their defaults."""


class TrialConfig(Model):
    """One training of a sweep: the settings that its method uses, and no others.

    It is also made from sections as in YAML (`TrialSections`): `TrialConfig(method="scale", training={"epochs": 2})`.
    """

    method: str
    seed: Seed
    env: EnvConfig
    algorithm: AnyAlgorithm
    network: AnyNetwork | None = Field(description="null: a price rule")
    srr: SRRConfig | None = Field(description="null: a method without it")
    stop: StopConfig = StopConfig()
    resources: TrialResources = TrialResources()
    population: str = Field(default="", description="PBT: hash of the search whose members trained side by side")

    @model_validator(mode="before")
    @classmethod
    def _of_sections(cls, data: Any) -> Any:
        """Policies of version 0.2 hold a trial in the form of sections, too."""
        if isinstance(data, Mapping) and "algorithm" not in data:
            data = TrialSections.model_validate(data)
        return _composed(data) if isinstance(data, TrialSections) else data

    @model_validator(mode="after")
    def _learners_split_minibatches(self) -> TrialConfig:
        learners, algorithm = self.resources.learners, self.algorithm
        if learners == 0:
            return self
        if not isinstance(algorithm, PPO | DQN | SAC):
            raise ValueError(f"resources.learners {learners}: method {self.method} learns in one process; valid: 0")
        key, rows = f"{algorithm.name}.batch_size", getattr(algorithm, "batch_size", 0)
        if isinstance(algorithm, PPO):
            key, rows = "training.minibatch_size", algorithm.minibatch_size
            if algorithm.time_unit_s is not None and learners > 1:
                raise ValueError(f"resources.learners {learners}: not with training.time_unit_s; valid: 0, 1")
        if rows % learners:
            raise ValueError(f"resources.learners {learners}: does not divide {key} {rows}; valid: what divides it")
        return self

    @model_validator(mode="after")
    def _skip_has_its_features(self) -> TrialConfig:
        features = self.env.observation.feature_set
        if isinstance(self.network, CrossAttentionConfig) and self.network.skip == "price" and features != "pairs":
            raise ValueError(
                f"network.skip price: needs env.observation.feature_set pairs (got {features}); valid: none, linear"
            )
        return self

    @model_validator(mode="after")
    def _problems_can_be_drawn(self) -> TrialConfig:
        problems, trace = self.algorithm.problems, self.env.workload.trace
        if problems is None:
            return self
        key = "training.problems.servers" if problems.family is None else "training.problems any"
        if problems.sizes and not self.spec.any_scale:
            raise ValueError(f"{key}: method {self.method} is fixed to one number of servers")
        if problems.offered_load is not None and trace is not None and trace.arrivals == "recorded":
            raise ValueError(
                "training.problems.offered_load: with trace.arrivals recorded the trace says when workflows arrive; "
                "valid: null, or trace.arrivals poisson"
            )
        for servers in problems.sizes:
            try:
                self.env.at_scale(servers)
            except ValueError as error:
                raise ValueError(f"{key} {servers}: {error}") from None
        return self

    @model_validator(mode="after")
    def _expert_can_be_asked(self) -> TrialConfig:
        expert = parse_scheduler(self.algorithm.expert) if isinstance(self.algorithm, Imitation) else None
        if not isinstance(expert, RuleSpec):
            return self  # a policy or user code is checked when it is loaded, before the training
        name = expert.name
        if HEURISTICS[name].plans:
            valid = offered(other for other, spec in HEURISTICS.items() if not spec.plans)
            raise ValueError(f"imitation.expert {name}: plans ahead and cannot be asked about one task; valid: {valid}")
        if name in DISPATCHERS and self.env.decision.on_busy != "reserve":
            raise ValueError(
                f"imitation.expert {name}: lets tasks wait for busy servers while others start; valid: "
                "env.decision.on_busy reserve, or an expert that is asked task by task"
            )
        return self

    @model_validator(mode="after")
    def _whole_episodes_can_be_played(self) -> TrialConfig:
        if isinstance(self.algorithm, CMAES | Reinforce) and self.env.costs_time:
            raise ValueError(f"env.episode.mask none: {without_paper_mode(self.method)}")
        return self

    @model_validator(mode="after")
    def _search_begins_as_its_method_does(self) -> TrialConfig:
        is_given = isinstance(self.algorithm, CMAES) and self.algorithm.initial != PriceParameters()
        if self.method == "adaptive-price" and is_given:
            raise ValueError("cma.initial: adaptive-price begins with the duals of what has arrived; leave it out")
        return self

    @property
    def spec(self) -> MethodSpec:
        """The registry entry of the method."""
        return METHODS[self.method]

    @property
    def encoder(self) -> str | None:
        """The user-defined encoder of the network."""
        return self.network.encoder if isinstance(self.network, CustomEncoderConfig) else None

    @property
    def stop_epochs(self) -> int:
        """Epochs after which the training ends."""
        if self.stop.env_steps is not None and self.env_steps_per_epoch is not None:
            return -(-self.stop.env_steps // self.env_steps_per_epoch)
        return self.stop.epochs or self.algorithm.epochs

    @property
    def env_steps_per_epoch(self) -> int | None:
        """Decisions of an epoch; None if an epoch plays whole episodes."""
        return self.algorithm.steps_per_epoch if isinstance(self.algorithm, InEpochs) else None

    @property
    def trial_id(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits).

        Settings at their defaults are left out, so that a new setting changes no hash. The numbers of environment
        runners and learners decide the weights; the number of workers that play whole episodes does not.
        """
        decide = {"env_runners", "learners"} if isinstance(self.algorithm, Rewarded) else set()
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"resources"})
        content["resources"] = self.resources.model_dump(include=decide, exclude_defaults=True)
        return digest(without_places(content) | {"format": TRIAL_FORMAT})

    @property
    def name(self) -> str:
        """Method, seed and hash: unique within a sweep."""
        return f"{self.method}-s{self.seed}-{self.trial_id}"

    def sections(self) -> dict[str, Any]:
        """The settings of the trial as plain data, by their keys in YAML."""
        content = self.model_dump(mode="json")
        found = {key: content[key] for key in ("method", "seed", "env", "stop", "resources", "population")}
        if self.srr is not None:
            found["srr"] = content["srr"]
        for key, part in (("algorithm", self.algorithm), ("network", self.network)):
            for field, section in places(type(part)).items() if part is not None else ():
                found.setdefault(section, {})[field] = content[key][field]
        return found


def _composed(sections: TrialSections) -> dict[str, Any]:
    """The fields of a TrialConfig from the settings that the method uses."""
    method, env = sections.method, sections.env
    if method not in METHODS:
        raise ValueError(str(choice_error("method", method, METHODS)))
    spec, chosen = METHODS[method], (sections.imitation.expert is not None, sections.network.encoder is not None)
    refuse_left_out(sections, used_settings(method, *chosen))
    trace = env.workload.trace
    if trace is not None and trace.part not in (None, "train"):
        raise ValueError(
            f"env.workload.trace.part {trace.part}: a training draws from train and is evaluated on test; leave it out"
        )
    algorithm, network = parts_of(method, *chosen)
    return {
        "method": method,
        "seed": sections.seed,
        "env": (in_rounds(env) if spec.rounds else env).with_part("train"),
        "algorithm": _part(algorithm, sections),
        "network": None if network is None else _part(network, sections),
        "srr": sections.srr if spec.srr else None,
        "stop": sections.stop,
        "resources": sections.resources,
        "population": sections.population,
    }


def _part(name: str, sections: TrialSections) -> Any:
    """An algorithm or a network with its settings from the sections."""
    own = OWN_VALUES if METHODS[sections.method].rounds else {}
    values: dict[str, Any] = {"name": name}
    for field, section in places(MODELS[name]).items():
        value = getattr(getattr(sections, section), field)
        values[field] = own.get(f"{section}.{field}") if value is None else value
    return MODELS[name](**values)
