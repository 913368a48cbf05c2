"""One training: its problem, algorithm and network, and the checks between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from rllib_scale.config.algorithms import (
    ALGORITHM_MODELS,
    CMAES,
    DQN,
    PPO,
    SAC,
    AnyAlgorithm,
    Imitation,
    InEpochs,
    Reinforce,
    Rewarded,
    TrainingConfig,
)
from rllib_scale.config.base import Model, Seed, SomeOf
from rllib_scale.config.identity import content_id
from rllib_scale.config.methods import METHODS, MethodSpec
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
from rllib_scale.config.schedulers import DISPATCHERS, HEURISTICS, PriceParameters, RuleSpec, parse_scheduler
from rllib_scale.config.training import ProblemsConfig, SRRConfig, StopConfig, TrialResources
from rllib_scale.errors import choice_error, offered

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
    population: str = Field(
        default="",
        description="hash of a search: of PBT, whose members trained side by side; of Optuna, with the training's "
        "number, until it has suggested settings",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_sections(cls, data: Any) -> Any:
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
        key = "minibatch_size" if isinstance(algorithm, PPO) else "batch_size"
        if (rows := getattr(algorithm, key)) % learners:
            raise ValueError(
                f"resources.learners {learners}: does not divide {algorithm.name}.{key} {rows}; valid: what divides it"
            )
        return self

    @model_validator(mode="after")
    def _whole_episodes_have_no_steps(self) -> TrialConfig:
        if self.stop.env_steps is not None and self.env_steps_per_epoch is None:
            raise ValueError(
                f"stop.env_steps {self.stop.env_steps}: method {self.method} plays whole episodes; valid: stop.epochs"
            )
        return self

    @model_validator(mode="after")
    def _replicas_can_be_trained_on(self) -> TrialConfig:
        holds, problems = self.spec.replicas, self.algorithm.problems
        if not self.env.on_replicas:
            if holds:
                raise ValueError(f"env.service fixed: method {self.method} holds calls of replicas; valid: replica")
            if problems is not None and problems.sessions is not None:
                raise ValueError("training.problems.sessions: not with env.service fixed; valid: null")
            return self
        if holds:
            if problems is not None and problems != ProblemsConfig(
                servers=problems.servers, sessions=problems.sessions
            ):
                raise ValueError("training.problems: on env.service replica it draws servers and sessions alone")
            credit_s = getattr(self.algorithm, "horizon_s", None) or 0.0
            if (lasts_s := self.env.episode.horizon_s - self.env.service.warm_up_s) <= credit_s:
                raise ValueError(
                    f"ppo.horizon_s {credit_s:g}: no decision is followed by so much time; valid: below {lasts_s:g}, "
                    "the time from env.service.warm_up_s to env.episode.horizon_s"
                )
            return self
        if self.spec.dispatches or isinstance(self.algorithm, Imitation):
            able = [name for name, spec in METHODS.items() if spec.replicas or not spec.dispatches]
            what = "imitation" if isinstance(self.algorithm, Imitation) else f"method {self.method}"
            raise ValueError(f"env.service replica: {what} does not decide call by call; valid: {', '.join(able)}")
        if problems is not None:
            raise ValueError("training.problems: not with env.service replica; valid: null")
        return self

    @model_validator(mode="after")
    def _skip_has_its_features(self) -> TrialConfig:
        features: str = "relative" if self.spec.visits else self.env.observation.feature_set
        if self.env.on_replicas:
            features = "replicas"
        if not isinstance(self.network, CrossAttentionConfig):
            return self
        skip, needs = self.network.skip, {"adaptive": "relative", "naive": "relative", "lmetric": "replicas"}
        if needs.get(skip, features) != features:
            where = "the features of replicas" if skip == "lmetric" else "the features of scale-any"
            valid = ", ".join(["none", "linear", *(name for name, needed in needs.items() if needed == features)])
            raise ValueError(f"network.skip {skip}: needs {where} (got {features}); valid: {valid}")
        if self.network.scarce and not self.spec.visits:
            raise ValueError(f"network.scarce {self.network.scarce:g}: needs the rounds of scale-any; leave it out")
        if self.network.penalty and skip != "naive":
            raise ValueError(f"network.penalty {self.network.penalty:g}: not with network.skip {skip}; valid: naive")
        return self

    @model_validator(mode="after")
    def _copies_are_played(self) -> TrialConfig:
        if not isinstance(self.algorithm, PPO):
            return self
        if self.spec.plays_copies and self.algorithm.copies is None:
            raise ValueError(f"ppo.copies null: {self.method} plays copies of each episode; valid: 2 and more")
        why, unlike = "learns from the time of tasks alone", ["reward", "reward_unit"]
        if not self.spec.plays_copies:
            why, unlike = "plays no copies of episodes; scale-any and scale-gate do", ["copies", "validation_instances"]
        if not (self.spec.plays_copies and self.spec.replicas):
            unlike.append("tail_weight")
        for key in unlike:
            if given := getattr(self.algorithm, key):
                raise ValueError(f"ppo.{key} {given}: method {self.method} {why}; leave it out")
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
        if self.spec.dispatches and self.env.costs_time:
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
    def visits_by(self) -> CrossAttentionConfig:
        """Settings of the order and the costs of a method that visits."""
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

    @property
    def trial_id(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits).

        Settings at their defaults are left out, so that a new setting changes no hash. The numbers of environment
        runners and learners decide the weights; the number of workers that play whole episodes does not.
        """
        decide = {"env_runners", "learners"} if isinstance(self.algorithm, Rewarded) else set()
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"resources"})
        content["resources"] = self.resources.model_dump(include=decide, exclude_defaults=True)
        return content_id(without_places(content))

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


def parts_of(method: str, imitates: bool, own_encoder: bool) -> tuple[str, str | None]:
    """Names of a method's algorithm and network (None: it has none).

    Args:
        method: a name in METHODS.
        imitates: whether `imitation.expert` is given.
        own_encoder: whether `network.encoder` is given.
    """
    spec = METHODS[method]
    clones = imitates and spec.algorithm == "ppo" and not spec.plays_copies  # which begins as a rule by network.skip
    algorithm = "imitation" if clones else spec.algorithm
    return algorithm, "custom" if own_encoder and spec.takes_encoder else spec.network


def env_of(method: str, env: EnvConfig) -> EnvConfig:
    """The problem on which a method trains, which brings some settings of its own."""
    spec, observation = METHODS[method], env.observation
    if spec.replicas and spec.plays_copies:
        return env.with_mask("feasible")  # what cannot be answered is not offered
    if spec.visits:  # it learns by the evaluated metric, and sees features of its own
        reward = RewardConfig(name="tasks-in-system", energy_power=env.reward.energy_power)
        return env.model_copy(update={"observation": ObservationConfig(), "reward": reward})
    if spec.algorithm == "cma":
        observation = ObservationConfig()
    if spec.algorithm == "reinforce":
        observation = observation.model_copy(update={"feature_set": "paper"})
    return env if observation == env.observation else env.model_copy(update={"observation": observation})


def _composed(sections: TrialSections) -> dict[str, Any]:
    """The fields of a TrialConfig from the settings that the method uses."""
    method, env = sections.method, sections.env
    if method not in METHODS:
        raise ValueError(str(choice_error("method", method, METHODS)))
    key, trace = ("service", env.service) if env.on_replicas else ("workload.trace", env.workload.trace)
    if trace is not None and trace.part not in (None, "train"):
        raise ValueError(
            f"env.{key}.part {trace.part}: a training draws from train and is evaluated on test; leave it out"
        )
    spec, chosen = METHODS[method], (sections.imitation.get("expert"), sections.network.get("encoder"))
    algorithm, network = parts_of(method, *(name is not None for name in chosen))
    shared = {key: value for key, value in sections.training if value is not None}
    for key in shared.keys() - ALGORITHM_MODELS[algorithm].model_fields.keys():
        having = [f"{name}.{key}" for name, model in ALGORITHM_MODELS.items() if key in model.model_fields]
        raise ValueError(f"training.{key}: {method} is trained by {algorithm}, without it; valid: {', '.join(having)}")
    return {
        "method": method,
        "seed": sections.seed,
        "env": env_of(method, env).with_part("train"),
        "algorithm": _built(ALGORITHM_MODELS[algorithm], algorithm, spec, shared, sections),
        "network": None if network is None else _built(NETWORK_MODELS[network], network, spec, {}, sections),
        "srr": sections.srr if spec.srr else None,
        "stop": sections.stop,
        "resources": sections.resources,
        "population": sections.population,
    }


def _built(model: Any, name: str, spec: MethodSpec, shared: Mapping[str, Any], sections: TrialSections) -> Any:
    """An algorithm or a network: the method's own defaults, what algorithms share, and over both its section."""
    section = getattr(model, "section", name)
    settings = {**spec.defaults.get(section, {}), **shared, **getattr(sections, section)}
    return model(name=name, **{key: value for key, value in settings.items() if key in model.model_fields})
