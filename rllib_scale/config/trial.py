"""One training: its sections, and what of one must fit another."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import (
    Model,
    Seed,
    digest,
)
from rllib_scale.config.methods import METHODS, AlgorithmName, MethodSpec
from rllib_scale.config.pinned import without_places
from rllib_scale.config.price_search import CMAConfig
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.reinforce import DecimaConfig, DeepRMConfig, ReinforceConfig
from rllib_scale.config.rounds import SKIP, TRAINING, in_rounds, with_unset, without_paper_mode
from rllib_scale.config.schedulers import DISPATCHERS, HEURISTICS, RuleSpec, parse_scheduler
from rllib_scale.config.training import (
    DQNConfig,
    ImitationConfig,
    NetworkConfig,
    SACConfig,
    SRRConfig,
    StopConfig,
    TrainingConfig,
    TrialResources,
)
from rllib_scale.errors import choice_error, offered

MAX_ROWS_GB = 64.0
"""Of the observations that a training keeps at once."""
MAX_IMAGE_WEIGHTS = 10**8
"""Of the network of `deeprm`."""
OWN_SECTIONS = {
    "dqn": ("dqn",),
    "sac": ("sac",),
    "cma-es": ("cma",),
    "reinforce": ("reinforce", "decima", "deeprm"),
}
"""Sections of a training that only trainings by one algorithm read; of the networks each only its method."""
TRIAL_FORMAT = 2
"""Changes when a default does: hashes of trainings and evaluations leave out what stands at its default."""


class Sections(Model):
    """What a training is made of: a sweep gives it to all its trials, which a grid or a search may vary in it."""

    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    dqn: DQNConfig = DQNConfig()
    sac: SACConfig = SACConfig()
    cma: CMAConfig = CMAConfig()
    reinforce: ReinforceConfig = ReinforceConfig()
    decima: DecimaConfig = DecimaConfig()
    deeprm: DeepRMConfig = DeepRMConfig()
    stop: StopConfig = StopConfig()
    srr: SRRConfig = SRRConfig()
    network: NetworkConfig = NetworkConfig()
    imitation: ImitationConfig = ImitationConfig()


class _Named(Model):
    method: str = "scale"
    seed: Seed = 42


class TrialConfig(Sections, _Named):  # fields come from right to left: the name first
    """One training of a sweep."""

    resources: TrialResources = TrialResources()
    population: str = Field(default="", description="PBT: hash of the search whose members trained side by side")

    @model_validator(mode="after")
    def _method_decides_srr(self) -> TrialConfig:
        if self.method not in METHODS:
            raise ValueError(str(choice_error("method", self.method, METHODS)))
        if not METHODS[self.method].srr:
            # One trial, whatever lambda grid it stands in: a method without SRR has no lambdas.
            object.__setattr__(self, "srr", SRRConfig(lambda_decorrelation=0, lambda_kl=0))
        return self

    @model_validator(mode="after")
    def _method_brings_its_rounds(self) -> TrialConfig:
        if self.spec.rounds:
            object.__setattr__(self, "env", in_rounds(self.env))
            object.__setattr__(self, "training", with_unset(self.training, TRAINING))
            if self.network.encoder is None:
                object.__setattr__(self, "network", with_unset(self.network, {"skip": SKIP}))
        return self

    @model_validator(mode="after")
    def _rows_fit_into_memory(self) -> TrialConfig:
        numbers = 5 + 5 * self.env.cluster.num_servers  # of an observation, about
        kept = {"training.steps_per_epoch": self.training.steps_per_epoch}
        if self.spec.algorithm in ("dqn", "sac"):
            kept[f"{self.spec.algorithm}.buffer_size"] = 2 * getattr(self, self.spec.algorithm).buffer_size
        for key, rows in kept.items():
            if (gigabytes := 4e-9 * numbers * rows) > MAX_ROWS_GB:
                raise ValueError(
                    f"{key}: {rows:,} observations of about {numbers} numbers take {gigabytes:,.0f} GB; "
                    f"valid: what takes {MAX_ROWS_GB:g} GB at most"
                )
        return self

    @model_validator(mode="after")
    def _skip_has_its_features(self) -> TrialConfig:
        skip, features = self.network.skip, self.env.observation.feature_set
        own = self.network.encoder is not None
        if skip not in (None, "none") and (self.spec.network != "cross-attention" or own):
            whose = "network.encoder" if own else f"the network of method {self.method}"
            raise ValueError(f"network.skip {skip}: {whose} has none; valid: none")
        if skip == "price" and features != "pairs":
            raise ValueError(
                f"network.skip price: needs env.observation.feature_set pairs (got {features}); valid: none, linear"
            )
        return self

    @model_validator(mode="after")
    def _own_parts_have_a_place(self) -> TrialConfig:
        spec = self.spec
        if self.network.encoder is not None and (spec.dispatches or not spec.any_scale):
            raise ValueError(
                f"network.encoder: method {self.method} has none to replace; valid: methods whose network takes any "
                "number of servers, as crossattn"
            )
        if self.training.reward is not None and (self.spec.dispatches or self.algorithm == "bc"):
            raise ValueError(f"training.reward: {self.algorithm} learns from none; valid: methods of PPO, DQN, SAC")
        return self

    @model_validator(mode="after")
    def _time_is_discounted_by_our_own_parts(self) -> TrialConfig:
        parts = (METHODS[self.method].algorithm, self.resources.sampler, self.resources.learner)
        if self.training.time_unit_s is not None and parts != ("ppo", "array", "lean"):
            raise ValueError(
                f"training.time_unit_s: method {self.method}, resources.sampler {parts[1]} and resources.learner "
                f"{parts[2]} discount by decision; valid: a method that PPO trains, array and lean"
            )
        if self.training.lambda_by == "time" and self.training.time_unit_s is None:
            raise ValueError("training.lambda_by time: needs training.time_unit_s")
        return self

    @model_validator(mode="after")
    def _problems_can_be_drawn(self) -> TrialConfig:
        problems, trace = self.training.problems, self.env.workload.trace
        if problems is None:
            return self
        if problems.servers and not self.spec.any_scale:
            raise ValueError(f"training.problems.servers: method {self.method} is fixed to one number of servers")
        if problems.offered_load is not None and trace is not None and trace.arrivals == "recorded":
            raise ValueError(
                "training.problems.offered_load: with trace.arrivals recorded the trace says when workflows arrive; "
                "valid: null, or trace.arrivals poisson"
            )
        for servers in problems.servers:
            try:
                self.env.at_scale(servers)
            except ValueError as error:
                raise ValueError(f"training.problems.servers {servers}: {error}") from None
        return self

    @model_validator(mode="after")
    def _imitation_is_possible(self) -> TrialConfig:
        policy_networks = METHODS[self.method].algorithm == "ppo"
        begins = ("training.initial_policy", self.training.initial_policy is not None)
        for key, is_set in (begins, ("imitation.expert", self.imitation.expert is not None)):
            if is_set and not policy_networks:
                raise ValueError(
                    f"{key}: method {self.method} is not one of PPO's; valid: methods that PPO trains, as crossattn"
                )
        if self.imitation.expert is None:
            return self
        if self.training.reference_kl_coefficient > 0:
            raise ValueError("training.reference_kl_coefficient: is of PPO; valid with imitation.expert: 0")
        expert = parse_scheduler(self.imitation.expert)
        if not isinstance(expert, RuleSpec):
            return self  # a policy or user code is checked when it is loaded, before anything is trained
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
        if not self.spec.dispatches:
            return self
        if self.env.costs_time:
            raise ValueError(f"env.episode.mask none: {without_paper_mode(self.method, self.method)}")
        section, counted = ("cma", "generations") if self.spec.algorithm == "cma-es" else ("reinforce", "epochs")
        if self.stop.env_steps is not None:
            raise ValueError(f"stop.env_steps: method {self.method} counts {counted}; valid: stop.epochs")
        sizes = len(self.training.problems.servers) if self.training.problems else 1
        for name in ("instances", "validation_instances"):
            if (found := getattr(getattr(self, section), name)) < sizes:
                raise ValueError(
                    f"{section}.{name} {found}: must be at least {sizes}, one for each of training.problems.servers"
                )
        return self

    @model_validator(mode="after")
    def _image_is_not_too_large(self) -> TrialConfig:
        if self.spec.network == "image":
            image, servers = self.deeprm, self.env.cluster.num_slots
            cells = (2 * servers + 2 * image.queue + 1) * image.time_steps
            weights = image.hidden * (cells + image.queue * servers + 1)
            if weights > MAX_IMAGE_WEIGHTS:
                raise ValueError(
                    f"deeprm: time_steps {image.time_steps}, queue {image.queue} and hidden {image.hidden} at "
                    f"{servers} server slots are {weights:,} weights; valid: at most {MAX_IMAGE_WEIGHTS:,}"
                )
        return self

    @model_validator(mode="after")
    def _trains_on_its_own_sessions(self) -> TrialConfig:
        trace = self.env.workload.trace
        if trace is not None and trace.part not in (None, "train"):
            raise ValueError(
                f"env.workload.trace.part {trace.part}: a training draws from train and is evaluated on test; leave "
                "it out"
            )
        object.__setattr__(self, "env", self.env.with_part("train"))
        return self

    @property
    def spec(self) -> MethodSpec:
        """The registry entry of this trial's method."""
        return METHODS[self.method]

    @property
    def algorithm(self) -> AlgorithmName | Literal["bc"]:
        """What trains the network: that of its method, or behaviour cloning."""
        return self.spec.algorithm if self.imitation.expert is None else "bc"

    @property
    def off_policy(self) -> DQNConfig | SACConfig:
        """The settings of a DQN or SAC training."""
        return self.dqn if self.spec.algorithm == "dqn" else self.sac

    @property
    def stop_epochs(self) -> int:
        """Epochs after which the training ends."""
        if self.stop.env_steps is not None:
            return -(-self.stop.env_steps // self.training.steps_per_epoch)
        return self.stop.epochs or self.epochs

    @property
    def epochs(self) -> int:
        """Epochs of the whole training; generations of a search."""
        of_dispatchers = {"cma-es": self.cma.epochs, "reinforce": self.reinforce.epochs}
        return of_dispatchers.get(self.spec.algorithm, self.training.epochs)

    @property
    def env_steps_per_epoch(self) -> int | None:
        """Decisions that an epoch trains on; None: it plays whole episodes, however many that takes."""
        return None if self.spec.dispatches else self.training.steps_per_epoch

    @property
    def trial_id(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits).

        Settings at their defaults are left out, so that a setting added later changes no identity.
        """
        other_algorithms = {name for sections in OWN_SECTIONS.values() for name in sections}
        other_algorithms -= set(OWN_SECTIONS.get(self.spec.algorithm, ()))
        other_algorithms |= {"decima", "deeprm"} - {self.method}
        content: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True, exclude=other_algorithms)
        decides = {"env_runners", "sampler", "learner", "compile"}
        if self.algorithm == "bc":
            decides -= {"env_runners", "sampler"}  # whoever lets the expert play, it plays the same
        content["resources"] = {k: v for k, v in content.get("resources", {}).items() if k in decides}
        content = without_places(content)
        return digest(content | {"format": TRIAL_FORMAT, "method": self.method, "seed": self.seed})

    @property
    def name(self) -> str:
        """Readable and unique within a sweep: method, seed and hash."""
        return f"{self.method}-s{self.seed}-{self.trial_id}"
