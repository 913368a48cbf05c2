"""One training: its problem, algorithm and network, and the checks between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from rllib_scale.config.algorithms import (
    PPO,
    AnyAlgorithm,
    Imitation,
    InEpochs,
    Minibatched,
    Reinforce,
    Rewarded,
    Searched,
    WholeEpisodes,
)
from rllib_scale.config.base import Model, Seed
from rllib_scale.config.identity import content_id
from rllib_scale.config.methods import METHODS, SECTIONS, composed, method_in
from rllib_scale.config.network import (
    NETWORK_MODELS,
    AnyNetwork,
    CrossAttentionConfig,
    CustomEncoderConfig,
    DecimaConfig,
)
from rllib_scale.config.pinned import without_places
from rllib_scale.config.problem import EnvConfig, ObservationConfig, RewardConfig, without_paper_mode
from rllib_scale.config.schedulers import DISPATCHERS, HEURISTICS, RuleSpec, parse_scheduler
from rllib_scale.config.training import NO_SRR, ProblemsConfig, SRRConfig, StopConfig, TrialResources
from rllib_scale.config.yaml_files import explain, set_path
from rllib_scale.errors import offered


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
        description="search, its hash and the training's number in it: of PBT, whose members trained side by side; of "
        "Optuna until it has suggested settings",
    )

    @classmethod
    def of(cls, method: str = "scale", *layers: Mapping[str, Any], **settings: Any) -> TrialConfig:
        """A training of a method.

        >>> TrialConfig.of("scale", algorithm={"epochs": 2}, seed=7).stop_epochs
        2

        Args:
            method: name of a preset.
            layers: sections over those of the preset, see `composed`.
            settings: sections over them, and other fields.

        Raises:
            ValueError: there is no such method, or a setting is not valid; one line.
        """
        rest = {name: value for name, value in settings.items() if name not in SECTIONS}
        data = {"seed": 42, "env": EnvConfig()} | rest | composed(method, *layers, settings)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(explain(error, "", data)) from None

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
                f"env.{key}.part {trace.part}: a training draws from train, and what it is compared with plays test; "
                "leave it out"
            )
        return trained_on(env, info.data.get("algorithm")).with_part("train")

    @model_validator(mode="after")
    def _parts_go_together(self) -> TrialConfig:
        algorithm, network = self.algorithm, self.network
        found = None if network is None else network.asked
        if found != algorithm.asks:
            valid = [name for name, model in NETWORK_MODELS.items() if model.asked == algorithm.asks]
            name = "null" if network is None else network.name
            said = ", ".join(valid) or "a method without a network, as context-price"
            raise ValueError(f"network {name}: {algorithm.name} trains none such; valid: {said}")
        if self.visits and not isinstance(network, CrossAttentionConfig):
            raise ValueError("algorithm.copies: for network cross-attention alone; valid: null")
        if self.rule == "scale-release" and not isinstance(network, CrossAttentionConfig):
            raise ValueError("algorithm.rule scale-release: for network cross-attention alone")
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
                raise ValueError(f"env.service fixed: {self.method} holds calls of replicas; valid: replica")
            if problems is not None and problems.sessions is not None:
                raise ValueError("algorithm.problems.sessions: not with env.service fixed; valid: null")
            return self
        if self.holds:
            if problems is not None and problems != ProblemsConfig(
                servers=problems.servers, sessions=problems.sessions
            ):
                raise ValueError("algorithm.problems: on env.service replica it draws servers and sessions alone")
            return self
        if not isinstance(self.algorithm, Rewarded):
            raise ValueError(
                f"env.service replica: {self.method} trained by {self.algorithm.name} does not decide call by call; "
                f"valid: release, scale-release, or a method of PPO, DQN or SAC"
            )
        if problems is not None:
            raise ValueError("algorithm.problems: not with env.service replica; valid: null")
        if self.visits:
            raise ValueError(f"algorithm.copies {self.copies}: not with env.service replica; valid: null")
        return self

    @model_validator(mode="after")
    def _skip_has_its_features(self) -> TrialConfig:
        if not isinstance(self.network, CrossAttentionConfig):
            return self
        skip = self.network.skip
        if skip in ("adaptive", "naive") and not self.visits:
            raise ValueError(
                f"network.skip {skip}: needs the features of scale-any (algorithm.copies); valid: none, linear"
            )
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
            why, unlike = "needs algorithm.copies, as scale-any has", ["validation_instances"]
        else:
            why, unlike = "not with algorithm.copies, by which the time of tasks is learned", ["reward", "reward_unit"]
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
        return self.algorithm.rule if isinstance(self.algorithm, Searched) else None

    @property
    def visits(self) -> bool:
        """Whether it decides in rounds in the order of `adaptive-price`, on the features `relative`."""
        return self.copies is not None

    @property
    def holds(self) -> bool:
        """Whether it places and holds calls of LLM replicas, and plays nothing else."""
        algorithm = self.algorithm
        return isinstance(algorithm, Searched) and algorithm.releases

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
        """Observability; see `HeuristicSpec`."""
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

    def setting(self, path: str) -> Any:
        """The value at a config path.

        Raises:
            KeyError: there is no such setting.
        """
        content: Any = self._plain()
        for key in path.split("."):
            if not isinstance(content, dict):
                raise KeyError(path)
            content = content[key]
        return content

    def changed(self, settings: Mapping[str, Any]) -> TrialConfig:
        """The training with other values at some config paths."""
        content = self._plain()
        for path, value in settings.items():
            set_path(content, path, value)
        return TrialConfig.model_validate(content)

    def _plain(self) -> dict[str, Any]:
        content = self.model_dump(mode="json")
        return content | {"srr": (self.srr or NO_SRR).model_dump(mode="json")}


def trained_on(env: EnvConfig, algorithm: Any) -> EnvConfig:
    """The problem as it is trained on: some algorithms bring their own reward and observation, or mask."""
    if isinstance(algorithm, PPO) and algorithm.copies is not None:
        # It learns by the evaluated metric, and sees features of its own.
        reward = RewardConfig(name="tasks-in-system", energy_power=env.reward.energy_power)
        return env.model_copy(update={"observation": ObservationConfig(), "reward": reward})
    observation = env.observation
    if isinstance(algorithm, Searched):
        observation = ObservationConfig(caches="own" if algorithm.releases else "exact")
    if isinstance(algorithm, Reinforce):
        observation = observation.model_copy(update={"feature_set": "paper"})
    return env if observation == env.observation else env.model_copy(update={"observation": observation})
