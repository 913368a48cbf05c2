"""One training: its problem, algorithm and network, and the checks between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial, reduce
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rllib_scale.config.algorithms import (
    ALGORITHM_MODELS,
    CMAES,
    DQN,
    PPO,
    SAC,
    AnyAlgorithm,
    Imitation,
    InEpochs,
    Minibatched,
    Reinforce,
    Rewarded,
    TrainingConfig,
    WholeEpisodes,
)
from rllib_scale.config.base import Model, Seed, SomeOf, merged
from rllib_scale.config.identity import content_id
from rllib_scale.config.methods import METHODS, Partial, method_in, preset_of
from rllib_scale.config.network import (
    NETWORK_MODELS,
    AnyNetwork,
    CrossAttentionConfig,
    CustomEncoderConfig,
    DecimaConfig,
    DeepRMConfig,
    EncoderConfig,
)
from rllib_scale.config.pinned import without_places
from rllib_scale.config.problem import EnvConfig, ObservationConfig, RewardConfig
from rllib_scale.config.rounds import without_paper_mode
from rllib_scale.config.schedulers import DISPATCHERS, HEURISTICS, RuleSpec, parse_scheduler
from rllib_scale.config.training import ProblemsConfig, SRRConfig, StopConfig, TrialResources
from rllib_scale.errors import offered

SECTIONS = ("algorithm", "network", "srr", "stop", "resources")
"""Sections of a trial that a method's preset, a sweep, an entry of `methods` and a grid give in part."""
MEMBERS: dict[str, dict[str, Any]] = {"algorithm": ALGORITHM_MODELS, "network": NETWORK_MODELS}
Given = dict[str, Any]
"""The settings of an algorithm or a network that a section gives."""
NOTHING: Given = {}
_ENCODERS = tuple(model for model in NETWORK_MODELS.values() if issubclass(model, EncoderConfig))


class Sections(Model):
    """Sections in YAML that all trainings of a sweep share, and that a grid or a search may vary."""

    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    ppo: Annotated[Given, SomeOf(PPO)] = NOTHING
    imitation: Annotated[Given, SomeOf(Imitation)] = NOTHING
    dqn: Annotated[Given, SomeOf(DQN)] = NOTHING
    sac: Annotated[Given, SomeOf(SAC)] = NOTHING
    cma: Annotated[Given, SomeOf(CMAES)] = NOTHING
    reinforce: Annotated[Given, SomeOf(Reinforce)] = NOTHING
    network: Annotated[Given, SomeOf(EncoderConfig, *_ENCODERS)] = NOTHING
    decima: Annotated[Given, SomeOf(DecimaConfig)] = NOTHING
    deeprm: Annotated[Given, SomeOf(DeepRMConfig)] = NOTHING
    srr: SRRConfig = SRRConfig()
    stop: StopConfig = StopConfig()


class TrialSections(Sections):
    """One training in the form of sections."""

    method: str = "scale"
    seed: Seed = 42
    resources: TrialResources = TrialResources()
    population: str = ""


class TrialConfig(Model):
    """One training of a sweep: the settings that it uses, and no others. `TrialConfig.of` makes it from a method."""

    seed: Seed
    algorithm: AnyAlgorithm
    network: AnyNetwork | None = Field(description="null: a price rule")
    srr: SRRConfig | None = Field(description="null: without it, as with both lambdas 0")
    env: EnvConfig = Field(description="as it is trained on: some methods decide, observe or are rewarded otherwise")
    stop: StopConfig = StopConfig()
    resources: TrialResources = TrialResources()
    population: str = Field(
        default="",
        description="hash of a search: of PBT, whose members trained side by side; of Optuna, with the training's "
        "number, until it has suggested settings",
    )

    @classmethod
    def of(cls, method: str = "scale", **settings: Any) -> TrialConfig:
        """A training of a method, with settings over those of its preset.

        >>> TrialConfig.of("scale", algorithm={"epochs": 2}, seed=7).stop_epochs
        2

        Raises:
            ValueError: there is no such method, or it has no such setting.
        """
        sections = {name: value for name, value in settings.items() if name in SECTIONS}
        rest = {name: value for name, value in settings.items() if name not in SECTIONS}
        return cls.model_validate({"seed": 42, "env": EnvConfig()} | rest | composed(method, sections))

    @model_validator(mode="before")
    @classmethod
    def _of_sections(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "algorithm" not in data:
            data = TrialSections.model_validate(data)
        return _of_sections(data) if isinstance(data, TrialSections) else data

    @field_validator("srr")
    @classmethod
    def _none_without_weights(cls, srr: SRRConfig | None) -> SRRConfig | None:
        return srr if srr is not None and (srr.lambda_decorrelation or srr.lambda_kl) else None

    @field_validator("env")
    @classmethod
    def _as_it_is_trained_on(cls, env: EnvConfig, info: ValidationInfo) -> EnvConfig:
        key, trace = ("service", env.service) if env.on_replicas else ("workload.trace", env.workload.trace)
        if trace is not None and trace.part not in (None, "train"):
            raise ValueError(
                f"{key}.part {trace.part}: a training draws from train and is evaluated on test; leave it out"
            )
        return trained_on(env, info.data.get("algorithm")).with_part("train")

    @model_validator(mode="after")
    def _parts_go_together(self) -> TrialConfig:
        algorithm, network = self.algorithm, self.network
        found = None if network is None else network.asked
        if found != algorithm.asks:
            valid = [name for name, model in NETWORK_MODELS.items() if model.asked == algorithm.asks]
            name = "null" if network is None else network.name
            raise ValueError(f"network {name}: {algorithm.name} trains none such; valid: {', '.join(valid) or 'null'}")
        if self.visits and not isinstance(network, CrossAttentionConfig):
            raise ValueError("algorithm.copies: with service fixed for network cross-attention alone; valid: null")
        if self.srr is not None and not isinstance(algorithm, Minibatched):
            raise ValueError(f"srr: {algorithm.name} has no regulariser; valid: a method without, as crossattn or dqn")
        return self

    @model_validator(mode="after")
    def _learners_split_minibatches(self) -> TrialConfig:
        learners, algorithm = self.resources.learners, self.algorithm
        if learners == 0:
            return self
        if not isinstance(algorithm, Rewarded):
            raise ValueError(f"resources.learners {learners}: {algorithm.name} learns in one process; valid: 0")
        key = "minibatch_size" if isinstance(algorithm, PPO) else "batch_size"
        if (rows := getattr(algorithm, key)) % learners:
            raise ValueError(
                f"resources.learners {learners}: does not divide algorithm.{key} {rows}; valid: what divides it"
            )
        return self

    @model_validator(mode="after")
    def _whole_episodes_have_no_steps(self) -> TrialConfig:
        if self.stop.env_steps is not None and self.env_steps_per_epoch is None:
            raise ValueError(
                f"stop.env_steps {self.stop.env_steps}: {self.algorithm.name} plays whole episodes; valid: stop.epochs"
            )
        return self

    @model_validator(mode="after")
    def _replicas_can_be_trained_on(self) -> TrialConfig:
        problems = self.algorithm.problems
        if not self.env.on_replicas:
            if self.holds:
                raise ValueError("env.service fixed: adaptive-gate holds calls of replicas; valid: replica")
            if problems is not None and problems.sessions is not None:
                raise ValueError("algorithm.problems.sessions: not with env.service fixed; valid: null")
            return self
        if self.holds:
            if problems is not None and problems != ProblemsConfig(
                servers=problems.servers, sessions=problems.sessions
            ):
                raise ValueError("algorithm.problems: on env.service replica it draws servers and sessions alone")
            credit_s = getattr(self.algorithm, "horizon_s", None) or 0.0
            if (lasts_s := self.env.episode.horizon_s - self.env.service.warm_up_s) <= credit_s:
                raise ValueError(
                    f"algorithm.horizon_s {credit_s:g}: no decision is followed by so much time; valid: below "
                    f"{lasts_s:g}, the time from env.service.warm_up_s to env.episode.horizon_s"
                )
            return self
        if not isinstance(self.algorithm, Rewarded):
            raise ValueError(
                f"env.service replica: {self.method} trained by {self.algorithm.name} does not decide call by call; "
                f"valid: adaptive-gate, scale-gate, or a method of PPO, DQN or SAC"
            )
        if problems is not None:
            raise ValueError("algorithm.problems: not with env.service replica; valid: null")
        return self

    @model_validator(mode="after")
    def _skip_has_its_features(self) -> TrialConfig:
        features: str = "relative" if self.visits else self.env.observation.feature_set
        if self.env.on_replicas:
            features = "replicas"
        if not isinstance(self.network, CrossAttentionConfig):
            return self
        skip, needs = self.network.skip, {"price": "pairs", "adaptive": "relative", "naive": "relative"}
        needs["lmetric"] = "replicas"
        if needs.get(skip, features) != features:
            where = {"price": "env.observation.feature_set pairs", "lmetric": "env.service replica"}.get(
                skip, "the features of scale-any (algorithm.copies)"
            )
            valid = ", ".join(["none", "linear", *(name for name, needed in needs.items() if needed == features)])
            raise ValueError(f"network.skip {skip}: needs {where}; valid: {valid}")
        if self.network.scarce and not self.visits:
            raise ValueError(f"network.scarce {self.network.scarce:g}: needs the rounds of scale-any; leave it out")
        if self.network.penalty and skip != "naive":
            raise ValueError(f"network.penalty {self.network.penalty:g}: not with network.skip {skip}; valid: naive")
        return self

    @model_validator(mode="after")
    def _copies_are_played(self) -> TrialConfig:
        if not isinstance(self.algorithm, PPO):
            return self
        if self.algorithm.copies is None:
            why, unlike = "needs algorithm.copies, as scale-any and scale-gate have", ["validation_instances"]
        else:
            why, unlike = "not with algorithm.copies, by which the time of tasks is learned", ["reward", "reward_unit"]
        if not (self.holds and self.algorithm.copies):
            why, unlike = why, [*unlike, "tail_weight"]
        for key in unlike:
            if given := getattr(self.algorithm, key):
                raise ValueError(f"algorithm.{key} {given}: {why}; leave it out")
        return self

    @model_validator(mode="after")
    def _problems_can_be_drawn(self) -> TrialConfig:
        problems, trace = self.algorithm.problems, self.env.workload.trace
        if problems is None:
            return self
        key = "algorithm.problems.servers" if problems.family is None else "algorithm.problems any"
        if problems.sizes and not self.any_scale:
            raise ValueError(f"{key}: method {self.method} is fixed to one number of servers")
        if problems.offered_load is not None and trace is not None and trace.arrivals == "recorded":
            raise ValueError(
                "algorithm.problems.offered_load: with trace.arrivals recorded the trace says when workflows arrive; "
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
            raise ValueError(f"algorithm.expert {name}: plans ahead and cannot be asked about one task; valid: {valid}")
        if name in DISPATCHERS and self.env.decision.on_busy != "reserve":
            raise ValueError(
                f"algorithm.expert {name}: lets tasks wait for busy servers while others start; valid: "
                "env.decision.on_busy reserve, or an expert that is asked task by task"
            )
        return self

    @model_validator(mode="after")
    def _whole_episodes_can_be_played(self) -> TrialConfig:
        if self.dispatches and self.env.costs_time:
            raise ValueError(f"env.episode.mask none: {without_paper_mode(self.method)}")
        return self

    @property
    def method(self) -> str:
        """The name of the method that it is, or is nearest to; nothing depends on it."""
        return method_in(self.model_dump(mode="json", include={"algorithm", "network", "srr"}))

    @property
    def description(self) -> str:
        """Its method in one line."""
        return METHODS[self.method].description

    @property
    def copies(self) -> int | None:
        """Copies of each episode that it learns from; None: it learns from single ones."""
        return self.algorithm.copies if isinstance(self.algorithm, PPO) else None

    @property
    def rule(self) -> str | None:
        """The price rule that is searched; None: a network is trained."""
        return self.algorithm.rule if isinstance(self.algorithm, CMAES) else None

    @property
    def visits(self) -> bool:
        """Whether it decides in rounds in the order of `adaptive-price`, on the features `relative`."""
        return self.copies is not None and not self.env.on_replicas

    @property
    def holds(self) -> bool:
        """Whether it places and holds calls of LLM replicas, and plays nothing else."""
        return self.rule == "adaptive-gate" or (self.copies is not None and self.env.on_replicas)

    @property
    def dispatches(self) -> bool:
        """Whether its policy decides for all waiting tasks at each event, trained on whole episodes."""
        return self.visits or isinstance(self.algorithm, WholeEpisodes)

    @property
    def any_scale(self) -> bool:
        """Whether a trained policy runs at any number of servers."""
        return self.network is None or self.network.any_scale

    @property
    def sees(self) -> Literal["tasks", "workflows"]:
        """As in `HeuristicSpec`."""
        whole = self.visits or isinstance(self.network, DecimaConfig)
        return "workflows" if whole or self.rule in ("context-price", "adaptive-price") else "tasks"

    @property
    def visits_by(self) -> CrossAttentionConfig:
        """Settings of the order and the costs of a training that visits."""
        assert isinstance(self.network, CrossAttentionConfig)
        return self.network

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

    def deciding(self, defaults: bool = False) -> dict[str, Any]:
        """Everything that decides the trained weights, as JSON content.

        The numbers of environment runners and learners do; the number of workers that play whole episodes does not.
        Without the defaults it is what the id is made of, so that a new setting changes no id.
        """
        decide = {"env_runners", "learners"} if isinstance(self.algorithm, Rewarded) else set()
        content = self.model_dump(mode="json", exclude_defaults=not defaults, exclude={"resources"})
        return content | {"resources": self.resources.model_dump(include=decide, exclude_defaults=not defaults)}

    @property
    def trial_id(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits)."""
        return content_id(without_places(self.deciding()))

    @property
    def name(self) -> str:
        """Method, seed and hash: unique within a sweep."""
        return f"{self.method}-s{self.seed}-{self.trial_id}"

    def settings(self, sections: Collection[str] | None = None, told: bool = False) -> dict[str, Any]:
        """The settings of the trial as plain data, by their keys in YAML, of which `model_validate` makes it again.

        Args:
            sections: some sections, those of the algorithm together; None: all.
            told: leave out settings at their defaults.
        """
        wanted = None if sections is None else {self._part_of(name) for name in sections}
        content = self.model_dump(mode="json", include=wanted, exclude_defaults=told)
        if wanted is None:
            content["method"] = self.method
        if (algorithm := content.pop("algorithm", None)) is not None:
            content["training"] = {key: algorithm.pop(key) for key in TrainingConfig.model_fields if key in algorithm}
            content[algorithm.pop("name")] = algorithm
        if (network := content.pop("network", None)) is not None and self.network is not None:
            content[self.network.section] = {key: value for key, value in network.items() if key != "name"}
        return {key: value for key, value in content.items() if value is not None}

    @staticmethod
    def _part_of(section: str) -> str:
        """The field of a trial that a section in YAML is about."""
        if section == "training" or section in ALGORITHM_MODELS:
            return "algorithm"
        return "network" if section in ("decima", "deeprm") else section

    def setting(self, path: str) -> Any:
        """The value at a config path, which may name a shared setting in the section of its algorithm, too.

        Raises:
            KeyError: the method has no such setting.
        """
        content: Any = self.settings()
        content[self.algorithm.name] |= content["training"]
        for key in path.split("."):
            if not isinstance(content, dict):
                raise KeyError(path)
            content = content[key]
        return content


def trained_on(env: EnvConfig, algorithm: Any) -> EnvConfig:
    """The problem as it is trained on: some algorithms bring their own reward and observation, or mask."""
    if isinstance(algorithm, PPO) and algorithm.copies is not None:
        if env.on_replicas:
            return env.with_mask("feasible")  # what cannot be answered is not offered
        # It learns by the evaluated metric, and sees features of its own.
        reward = RewardConfig(name="tasks-in-system", energy_power=env.reward.energy_power)
        return env.model_copy(update={"observation": ObservationConfig(), "reward": reward})
    observation = env.observation
    if isinstance(algorithm, CMAES):
        observation = ObservationConfig()
    if isinstance(algorithm, Reinforce):
        observation = observation.model_copy(update={"feature_set": "paper"})
    return env if observation == env.observation else env.model_copy(update={"observation": observation})


def composed(method: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training: a method's preset with layers of sections over it, each merged; the last one wins.

    A section that names another algorithm or network than the preset drops what the preset sets there. An own encoder
    is a network of its own. `srr` acts where the method has SRR.

    Args:
        method: name of a preset.
        layers: sections of a trial (`SECTIONS`) with some settings each. An empty one, and null, changes nothing.

    Raises:
        ValueError: there is no such method; a section is no mapping; or an algorithm or a network has no such setting.
    """
    preset = preset_of(method)
    given = {name: [_mapping(name, layer.get(name)) for layer in layers] for name in SECTIONS}
    encoder = [layer["encoder"] for layer in given["network"] if "encoder" in layer][-1:]
    if encoder:
        given["network"] = [{key: layer[key] for key in layer if key != "encoder"} for layer in given["network"]]
        given["network"] += [{"name": "custom", "encoder": encoder[0]}] * (encoder[0] is not None)
    return {
        "algorithm": _member(method, "algorithm", preset.algorithm, given["algorithm"]),
        "network": _member(method, "network", preset.network, given["network"]),
        "srr": None if preset.srr is None else _over(SRRConfig, preset.srr, given["srr"]),
        "stop": _over(StopConfig, {}, given["stop"]),
        "resources": _over(TrialResources, {}, given["resources"]),
    }


def _mapping(section: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, Model):
        return value.model_dump(exclude_unset=True)
    if not (value is None or isinstance(value, Mapping)):
        raise ValueError(f"{section}: must be a mapping of keys to values (got {value!r:.60})")
    return value or {}


def _over(model: type[Model] | None, base: Mapping[str, Any], layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return reduce(partial(merged, model), layers, dict(base))


def _member(
    method: str, section: str, preset: Partial | None, layers: list[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The settings of an algorithm or a network."""
    name = next((layer["name"] for layer in reversed(layers) if layer.get("name") is not None), None)
    if preset is None and name is None:
        if unused := next((key for layer in layers for key in layer), None):
            raise ValueError(f"{section}.{unused}: {method} has no {section}; {_place(section, unused)}")
        return None
    base = preset if preset is not None and name in (None, preset["name"]) else {"name": name}
    models = MEMBERS[section]
    model: Any = models.get(str(base["name"]))
    found = _over(model, base, layers)
    for key in found if model is not None else ():
        if key not in model.model_fields and any(key in other.model_fields for other in models.values()):
            raise ValueError(
                f"{section}.{key}: {method}, with {section} {base['name']}, has none; {_place(section, key)}"
            )
    return found


def _place(section: str, key: str) -> str:
    """Where a setting that not all methods of a sweep have may stand."""
    having = [name for name, model in MEMBERS[section].items() if key in model.model_fields]
    methods = [name for name, preset in METHODS.items() if (getattr(preset, section) or {}).get("name") in having]
    entry = f"{(methods or ['METHOD'])[0]}: {{{section}: {{{key}: ...}}}}"
    return f"valid: with {section} {', '.join(having)}; for one of several methods: `methods: [{{{entry}}}, ...]`"


# ---------------------------------------------------------------------- sections of an older shape


def _of_sections(sections: TrialSections) -> dict[str, Any]:
    preset = preset_of(sections.method)
    algorithm = preset.algorithm["name"]
    if sections.imitation.get("expert") and algorithm == "ppo" and not preset.algorithm.get("copies"):
        algorithm = "imitation"
    shared = {key: value for key, value in sections.training if value is not None}
    network = preset.network and preset.network["name"]
    of_network = getattr(sections, network if network in ("decima", "deeprm") else "network") if network else {}
    if of_network.get("encoder"):
        network = "custom"
    layer = {
        "algorithm": {"name": algorithm} | shared | getattr(sections, algorithm),
        "network": {key: value for key, value in of_network.items() if key in NETWORK_MODELS[network].model_fields}
        if network
        else {},
        "srr": sections.srr,
        "stop": sections.stop,
        "resources": sections.resources,
    }
    return composed(sections.method, layer) | {
        "seed": sections.seed,
        "env": sections.env,
        "population": sections.population,
    }
