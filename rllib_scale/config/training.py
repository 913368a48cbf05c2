"""One training: algorithm, network, regulariser, when to stop, what to ask Ray for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rllib_scale import zoo
from rllib_scale.config.base import (
    ADDED,
    MAX_SERVERS,
    MIN_SERVERS,
    Count,
    Fraction,
    Model,
    NonNegative,
    Number,
    Positive,
    Seed,
    Width,
    digest,
)
from rllib_scale.config.heuristics import DISPATCHERS, HEURISTICS, pinned_heuristic
from rllib_scale.config.methods import METHODS, AlgorithmName, MethodSpec
from rllib_scale.config.pinned import MARK, check_unchanged, digest_of, folders_of, pin, split, without_places
from rllib_scale.config.price_search import CMAConfig
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.rounds import TRAINING, WITHOUT_PAPER_MODE, in_rounds, with_unset
from rllib_scale.errors import UserError, choice_error

MAX_ROWS_GB = 64.0
"""Of the observations that a training keeps at once."""
CELL_FORMAT = 2
"""Changes when a default does: a cell's hash leaves out what stands at its default."""


class NetworkConfig(Model):
    """Sizes of the networks [SCALE, sec. 4.2 and 5]."""

    embedding_dim: Width = 16
    num_heads: Width = 4
    num_blocks: Annotated[int, Number, Field(ge=1, le=64)] = 2
    critic_hidden: Width = 64
    mlp_hidden: tuple[Width, ...] = Field(default=(256, 256), min_length=1)
    induced_points: Width = Field(default=8, description="set-transformer: points through which servers attend")
    logit_clip: Positive = Field(default=10.0, description="attention-model: bound of the logits, 10 tanh")
    standardise: Literal["fixed", "none"] = Field(
        default="fixed", description="inputs standardised by fixed constants inside the network, or raw"
    )
    skip: Literal["none", "linear", "price"] | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="cross-attention: logits also linear in a server's features, by weights linear in the task's, "
        "which begin at 0 or as the price rule; unset: as the method says",
    )
    skip_sharpness: Positive = Field(
        default=4.0,
        json_schema_extra=ADDED,
        description="price: what a second more of the rule's cost takes off a logit at the beginning",
    )

    @model_validator(mode="after")
    def _heads_divide(self) -> NetworkConfig:
        if self.embedding_dim % self.num_heads:
            raise ValueError(f"embedding_dim {self.embedding_dim} is not a multiple of num_heads {self.num_heads}")
        return self


class SRRConfig(Model):
    """Regulariser on the attention feature [SCALE, sec. 4.3]."""

    lambda_decorrelation: NonNegative = Field(default=0.01, description="lambda_1, weight of L_c")
    lambda_kl: NonNegative = Field(default=0.001, description="lambda_2, weight of L_d")
    ramp_start_epoch: NonNegative = 10
    ramp_epochs: Positive = 50
    reduction: Literal["sum", "mean"] = Field(default="sum", description="over the off-diagonal entries of L_c")


class ProblemsConfig(Model):
    """Problems to train on: each episode is played on `env` at a number of servers and a load that are drawn for it.

    What is left out stays that of `env`.
    """

    servers: tuple[Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)], ...] = Field(
        default=(), description="one of them, each as often; empty: the number of `env`"
    )
    offered_load: tuple[Positive, Positive] | None = Field(
        default=None, description="low and high, uniform between; null: the load of `env`"
    )

    @model_validator(mode="after")
    def _ordered(self) -> ProblemsConfig:
        if self.offered_load is not None and self.offered_load[0] > self.offered_load[1]:
            raise ValueError(f"offered_load: low {self.offered_load[0]} is above high {self.offered_load[1]}")
        return self

    def all(self, env: EnvConfig) -> list[EnvConfig]:
        """The problem at each number of servers, at its own load."""
        return [env.at_scale(servers) for servers in self.servers] or [env]

    def draw(self, env: EnvConfig, u: float, v: float) -> EnvConfig:
        """The problem of one episode. `u` and `v`, uniform in [0, 1), decide the number of servers and the load."""
        every = self.all(env)
        drawn = every[int(u * len(every))]
        if self.offered_load is None:
            return drawn
        low, high = self.offered_load
        workload = drawn.workload.model_copy(update={"offered_load": low + v * (high - low)})
        return drawn.model_copy(update={"workload": workload})


class TrainingConfig(Model):
    """The paper's PPO [SCALE, sec. 5]; DQN and SAC take epochs, gamma, steps_per_epoch and num_envs from here."""

    epochs: Count = Field(default=1000, description="one collect and its update; also the length of the cosine")
    learning_rate: Positive = 3e-4
    final_learning_rate: NonNegative = 5e-5
    gamma: Fraction = 0.99
    time_unit_s: Positive | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="PPO: gamma discounts so much time, so that answers that take none are not discounted; unset: it "
        "discounts every decision [SCALE, sec. 4.1]",
    )
    gae_lambda: Fraction = 0.95
    clip: Positive = 0.2
    entropy_coefficient: NonNegative = 0.01
    value_coefficient: NonNegative = Field(default=0.5, description="c_1, open in the paper")
    gradient_clip: Positive = Field(default=0.5, description="global norm")
    steps_per_epoch: Count = 1024
    num_envs: Annotated[int, Number, Field(ge=1, le=65_536)] = Field(
        default=4, description="parallel environments an environment runner"
    )
    minibatch_size: Annotated[int, Field(ge=2)] = 256
    passes: Count = 8
    adam_epsilon: Positive = 1e-5
    standardise_advantages: Literal["minibatch", "epoch", "none"] = Field(
        default="minibatch",
        json_schema_extra=ADDED,
        description="to mean 0 and deviation 1 over those rows; open in the paper",
    )
    initial_policy: str | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="PPO and imitation: folder of an exported policy, or `zoo:NAME`, whose weights the network begins "
        "with; its critic is new",
    )
    reference_kl_coefficient: NonNegative = Field(
        default=0.0,
        json_schema_extra=ADDED,
        description="PPO: weight of KL(policy || initial policy) in the loss, which keeps it near that one",
    )
    reward_unit: Positive | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="rewards are learned from in this unit times the servers of the episode, so that returns are about "
        "1 at any scale; unset: as they are, as in every table",
    )
    siblings: Count = Field(
        default=1,
        json_schema_extra=ADDED,
        description="PPO: so many environments of a runner play each workload side by side, from its beginning in "
        "every epoch, and what happens to all of them alike does not count as an advantage",
    )
    lambda_by: Literal["decision", "time"] | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="PPO: gae_lambda counts once a decision, or once a time_unit_s; unset: a decision, or as the "
        "method says",
    )
    problems: ProblemsConfig | None = Field(
        default=None,
        json_schema_extra=ADDED,
        description="a number of servers and a load drawn for each episode; null: those of `env`",
    )

    @field_validator("initial_policy")
    @classmethod
    def _pinned(cls, value: str | None, info: ValidationInfo) -> str | None:
        return None if value is None else pin_policy(value, info)

    @model_validator(mode="after")
    def _reference_is_there(self) -> TrainingConfig:
        if self.reference_kl_coefficient > 0 and self.initial_policy is None:
            raise ValueError("reference_kl_coefficient: there is no policy to stay near; give initial_policy, too")
        return self

    @model_validator(mode="after")
    def _divides(self) -> TrainingConfig:
        if self.steps_per_epoch % self.minibatch_size:
            raise ValueError(
                f"steps_per_epoch {self.steps_per_epoch} is not a multiple of minibatch_size {self.minibatch_size}"
            )
        if self.num_envs % self.siblings:
            raise ValueError(f"num_envs {self.num_envs} is not a multiple of siblings {self.siblings}")
        return self


def pin_policy(value: str, info: ValidationInfo) -> str:
    """The description in a policy folder, pinned: it holds the digest of the weights, so its own is that of both.

    One of the zoo keeps its name, for the package may lie elsewhere on another node.
    """
    if zoo.is_named(value) and MARK not in value:
        try:
            return f"{value}{MARK}{digest_of(zoo.folder_of(value) / 'policy.json')}"
        except UserError as error:
            raise ValueError(str(error)) from None
    return pin(value if MARK in value or value.endswith(".json") else f"{value}/policy.json", folders_of(info))


def policy_folder(pinned: str, key: str) -> Path:
    """The folder of a policy that `pin_policy` named; `key` is where the config names it.

    Raises:
        UserError: it is missing or has changed.
    """
    place, content = split(pinned)
    path = zoo.folder_of(place) / "policy.json" if zoo.is_named(place) else Path(place)
    return check_unchanged(path, content, key).parent


class ImitationConfig(Model):
    """Behaviour cloning: with an expert, networks learn what it would choose, by cross-entropy, and nothing else.

    It takes epochs, learning rates, minibatch_size, gradient_clip and adam_epsilon from `training`; an epoch learns
    from steps_per_epoch demonstrated decisions, once from each.
    """

    expert: str | None = Field(
        default=None,
        description="a scheduler that is asked, with parameters as `reserve:waiting=2`, or the folder of an exported "
        "policy, or `zoo:NAME`; unset: no imitation",
    )
    episodes: Count = Field(default=256, description="that it plays to be learned from")
    holdout_episodes: Count = Field(default=32, description="more of them, on which only agreement is measured")

    @field_validator("expert")
    @classmethod
    def _known(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        if zoo.is_named(value) or "/" in value.partition(":")[0]:
            return pin_policy(value, info)
        try:
            return pinned_heuristic(value, bool(info.context and info.context.get("foreign")))
        except UserError as error:
            raise ValueError(f"{error}; or a path with a slash, the folder of a policy; or zoo:NAME") from None

    @property
    def policy(self) -> Path | None:
        """Folder of the policy that is the expert; None where it is a rule, or there is none.

        Raises:
            UserError: it is missing or has changed.
        """
        if self.expert is None or MARK not in self.expert:
            return None
        return policy_folder(self.expert, "imitation.expert")


class StopConfig(Model):
    """Where a training ends; unset: after `training.epochs`. The cosine's length stays that of `training.epochs`."""

    epochs: Count | None = None
    env_steps: Count | None = Field(default=None, description="rounded up to whole epochs")

    @model_validator(mode="after")
    def _one_of_two(self) -> StopConfig:
        if self.epochs is not None and self.env_steps is not None:
            raise ValueError("give epochs or env_steps, not both")
        return self


class OffPolicyConfig(Model):
    """What DQN and SAC share. The paper names the algorithms and no settings."""

    buffer_size: Annotated[int, Field(ge=1024)] = Field(default=50_000, description="rows, drawn from uniformly")
    batch_size: Annotated[int, Field(ge=2)] = 64
    warmup_steps: Count = Field(default=2048, description="env steps before the first update")
    steps_per_update: Count = Field(default=4, description="env steps for one gradient step")
    steps_per_round: Annotated[int, Field(ge=1, le=512)] = Field(
        default=64, description="env steps sampled with the same weights, between two rounds of updates"
    )
    gradient_clip: Positive = Field(default=10.0, description="global norm, of each optimizer's parameters")
    adam_epsilon: Positive = Field(default=1e-8, description="gradients are far smaller here than in PPO")


class DQNConfig(OffPolicyConfig):
    """Dueling double DQN, epsilon-greedy."""

    learning_rate: Positive = 5e-4
    target_update_steps: Count = Field(default=2048, description="env steps between copies to the target network")
    epsilon_initial: Fraction = 1.0
    epsilon_final: Fraction = 0.05
    epsilon_steps: Count = Field(default=50_000, description="env steps over which epsilon falls linearly")
    double: bool = True
    dueling: bool = True


class SACConfig(OffPolicyConfig):
    """Discrete SAC with twin Q-networks."""

    learning_rate: Positive = Field(default=3e-4, description="of policy, Q-networks and temperature")
    target_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.005, description="tau of the target networks, at every gradient step"
    )
    initial_temperature: Positive = 0.1
    target_entropy_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="target entropy as a share of ln of the servers that may be chosen, N without a mask"
    )


class TrialResources(Model):
    """What one training asks Ray for, and which environment runner and update loop work for it."""

    sampler: Literal["array", "rllib"] = Field(
        default="array", description="our environment runner over whole arrays, or RLlib's own step by step"
    )
    learner: Literal["lean", "rllib"] = Field(
        default="lean", description="our update loop over whole arrays, or RLlib's own; equal but for rounding"
    )
    compile: bool = Field(
        default=False,
        description="lean only: torch.compile critic and loss; half a minute of warm-up, needs a C++ compiler",
    )
    env_runners: Annotated[int, Field(ge=0)] = Field(default=0, description="remote samplers; 0 samples in the learner")
    cpus: Positive = Field(default=1.0, description="of the learner process; each environment runner takes one more")


class Sections(Model):
    """What a training is made of: a sweep gives it to all its cells, which a grid or a search may vary in it."""

    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    dqn: DQNConfig = DQNConfig()
    sac: SACConfig = SACConfig()
    cma: CMAConfig = Field(default=CMAConfig(), json_schema_extra=ADDED)
    stop: StopConfig = StopConfig()
    srr: SRRConfig = SRRConfig()
    network: NetworkConfig = NetworkConfig()
    imitation: ImitationConfig = Field(default=ImitationConfig(), json_schema_extra=ADDED)


class _Named(Model):
    method: str = "scale"
    seed: Seed = 42


class TrialConfig(Sections, _Named):  # fields come from right to left: the name first
    """One training: a cell of a sweep."""

    resources: TrialResources = TrialResources()
    population: str = Field(default="", description="PBT: hash of the search whose members trained side by side")

    @model_validator(mode="after")
    def _method_decides_srr(self) -> TrialConfig:
        if self.method not in METHODS:
            raise ValueError(str(choice_error("method", self.method, METHODS)))
        if not METHODS[self.method].srr:
            # One cell, whatever lambda grid it stands in: a method without SRR has no lambdas.
            object.__setattr__(self, "srr", SRRConfig(lambda_decorrelation=0, lambda_kl=0))
        return self

    @model_validator(mode="after")
    def _method_brings_its_rounds(self) -> TrialConfig:
        if self.spec.rounds:
            object.__setattr__(self, "env", in_rounds(self.env))
            object.__setattr__(self, "training", with_unset(self.training, TRAINING))
            object.__setattr__(self, "network", with_unset(self.network, {"skip": "price"}))
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
        if skip not in (None, "none") and self.spec.network != "cross-attention":
            raise ValueError(f"network.skip {skip}: the network of method {self.method} has none; valid: none")
        if skip == "price" and features != "pairs":
            raise ValueError(
                f"network.skip price: needs env.observation.feature_set pairs (got {features}); valid: none, linear"
            )
        return self

    @model_validator(mode="after")
    def _time_is_discounted_by_our_own_parts(self) -> TrialConfig:
        parts = (METHODS[self.method].algorithm, self.resources.sampler, self.resources.learner)
        if self.training.time_unit_s is not None and parts != ("ppo", "array", "lean"):
            raise ValueError(
                f"training.time_unit_s: method {self.method}, resources.sampler {parts[1]} and resources.learner "
                f"{parts[2]} discount by decision; valid: a method that PPO trains, array and lean"
            )
        if self.training.siblings > 1 and parts != ("ppo", "array", "lean"):
            raise ValueError(
                f"training.siblings {self.training.siblings}: method {self.method}, resources.sampler {parts[1]} and "
                f"resources.learner {parts[2]} know none; valid: 1, or a method that PPO trains, array and lean"
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
            except ValueError:
                least = max(MIN_SERVERS, len(self.env.cluster.tiers))
                raise ValueError(f"training.problems.servers: {servers} is too few; at least {least}") from None
        return self

    @model_validator(mode="after")
    def _imitation_is_possible(self) -> TrialConfig:
        policy_networks = METHODS[self.method].algorithm == "ppo"
        begins = ("training.initial_policy", self.training.initial_policy is not None)
        for key, is_set in (begins, ("imitation.expert", self.imitation.expert is not None)):
            if is_set and not policy_networks:
                raise ValueError(f"{key}: method {self.method} has no policy network; valid: methods that PPO trains")
        if self.imitation.expert is None:
            return self
        if self.training.reference_kl_coefficient > 0:
            raise ValueError("training.reference_kl_coefficient: is of PPO; valid with imitation.expert: 0")
        if MARK in self.imitation.expert:
            return self
        name = self.imitation.expert.partition(":")[0]
        if name not in HEURISTICS:
            return self  # of one's own: looked at as it is loaded, before anything is trained
        if HEURISTICS[name].plans:
            valid = ", ".join(other for other, spec in HEURISTICS.items() if not spec.plans)
            raise ValueError(f"imitation.expert {name}: plans ahead and cannot be asked about one task; valid: {valid}")
        if name in DISPATCHERS and self.env.decision.on_busy != "reserve":
            raise ValueError(
                f"imitation.expert {name}: lets tasks wait for busy servers while others start; valid: "
                "env.decision.on_busy reserve, or an expert that is asked task by task"
            )
        return self

    @model_validator(mode="after")
    def _prices_can_be_searched(self) -> TrialConfig:
        if self.spec.algorithm != "cma-es":
            return self
        if self.env.costs_time:
            raise ValueError(f"env.episode.mask none: {WITHOUT_PAPER_MODE.format(self.method)}")
        if self.stop.env_steps is not None:
            raise ValueError(f"stop.env_steps: method {self.method} counts generations; valid: stop.epochs")
        sizes = len(self.training.problems.servers) if self.training.problems else 1
        for name in ("instances", "validation_instances"):
            if getattr(self.cma, name) < sizes:
                raise ValueError(
                    f"cma.{name} {getattr(self.cma, name)}: must be at least {sizes}, one for each of "
                    "training.problems.servers"
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
        return self.cma.epochs if self.spec.algorithm == "cma-es" else self.training.epochs

    @property
    def env_steps_per_epoch(self) -> int | None:
        """Decisions that an epoch trains on; None: a generation plays whole episodes, however many it takes."""
        return None if self.spec.algorithm == "cma-es" else self.training.steps_per_epoch

    @property
    def cell(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits).

        Settings at their defaults are left out, so that a setting added later leaves finished cells what they are.
        """
        other_algorithms = {"dqn", "sac", "cma"} - {self.spec.algorithm.removesuffix("-es")}
        content: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True, exclude=other_algorithms)
        decides = {"env_runners", "sampler", "learner", "compile"}
        if self.algorithm == "bc":
            decides -= {"env_runners", "sampler"}  # whoever lets the expert play, it plays the same
        content["resources"] = {k: v for k, v in content.get("resources", {}).items() if k in decides}
        content = without_places(content)
        return digest(content | {"format": CELL_FORMAT, "method": self.method, "seed": self.seed})

    @property
    def name(self) -> str:
        """Readable and unique within a sweep: method, seed and cell hash."""
        return f"{self.method}-s{self.seed}-{self.cell}"
