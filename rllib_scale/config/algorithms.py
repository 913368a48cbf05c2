"""Algorithms: `algorithm` of a trial is one of these, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import (
    Count,
    Episodes,
    Fraction,
    LearningRate,
    Model,
    NonNegative,
    Positive,
    Width,
    models_of,
)
from rllib_scale.config.paths import Changing, Refers
from rllib_scale.config.replica_rules import GateParameters
from rllib_scale.config.schedulers import PolicySpec, PriceParameters, RuleSpec, parse_scheduler
from rllib_scale.config.training import ProblemsConfig

MAX_ROWS = 10**7
"""Observations that a training keeps at once: 4 GB at 16 servers."""
PROBLEMS = (
    "a number of servers and a load drawn for each episode, or `any`: a problem of any cluster (`family`); null: the "
    "problem of `env`"
)
REWARD = (
    "user-defined function in place of the problem's reward, `package.module:Name` or an entry point: see "
    "docs/extending.md"
)
Rows = Annotated[int, Field(ge=2, le=MAX_ROWS)]


class Drawn(Model):
    """Settings of every algorithm: the problems that it draws."""

    problems: ProblemsConfig | None = Field(default=None, description=PROBLEMS)

    @property
    def asks(self) -> Literal["scores", "starts"] | None:
        """Kind of answer of the networks that it trains; None: it trains none."""
        return "scores"


class InEpochs(Drawn):
    """Settings of trainings by RLlib: epochs of a number of decisions."""

    epochs: Count = Field(default=1000, description="samples and their update; also the length of the cosine")
    learning_rate: Changing[LearningRate] = Field(default=3e-4, description="initial learning rate of Adam")
    steps_per_epoch: Annotated[int, Field(ge=1, le=MAX_ROWS)] = Field(default=1024, description="decisions of an epoch")


class Rewarded(InEpochs):
    """Settings of PPO, DQN and SAC: environments and rewards."""

    gamma: Changing[Fraction] = Field(default=0.99, description="discount")
    num_envs: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=4, description="parallel environments of an environment runner"
    )
    reward: Annotated[str, Refers("reward")] | None = Field(default=None, description=REWARD)
    reward_unit: Positive | None = Field(
        default=None,
        description="unit of rewards per server of the episode, so that returns are about 1 at any scale; null: "
        "rewards as they are, as in every table",
    )


class Minibatched(InEpochs):
    """Settings of PPO and imitation: minibatches, and a learning rate that follows a cosine."""

    name: Literal["ppo", "imitation"]
    final_learning_rate: Changing[Fraction] = Field(default=5e-5, description="learning rate at the end of the cosine")
    gradient_clip: Changing[Positive] = Field(default=0.5, description="global norm")
    minibatch_size: Annotated[int, Field(ge=2)] = Field(
        default=256, description="samples of a gradient step; divides steps_per_epoch"
    )
    adam_epsilon: Positive = Field(default=1e-5, description="epsilon of Adam")
    initial_policy: Annotated[str, Refers("policy")] | None = Field(
        default=None,
        description="folder of an exported policy, or `zoo:NAME`, with the initial weights of the network; the critic "
        "is new",
    )

    @model_validator(mode="after")
    def _minibatches_divide(self) -> Minibatched:
        if self.steps_per_epoch % self.minibatch_size:
            raise ValueError(
                f"algorithm.steps_per_epoch {self.steps_per_epoch}: is not a multiple of algorithm.minibatch_size "
                f"{self.minibatch_size}"
            )
        return self


class PPO(Minibatched, Rewarded):
    """The paper's PPO [SCALE, sec. 5]."""

    name: Literal["ppo"]
    gae_lambda: Changing[Fraction] = Field(default=0.95, description="lambda of generalised advantage estimation")
    clip: Changing[Positive] = Field(default=0.2, description="bound of the policy's ratio")
    entropy_coefficient: Changing[NonNegative] = Field(default=0.01, description="weight of the entropy in the loss")
    value_coefficient: Changing[NonNegative] = Field(default=0.5, description="c_1, open in the paper")
    critic_hidden: Width = Field(default=64, description="hidden layer of the critic")
    passes: Changing[Count] = Field(default=8, description="passes over the samples of an epoch")
    standardise_advantages: Literal["minibatch", "epoch", "none"] = Field(
        default="minibatch",
        description="advantages to mean 0 and deviation 1 over these samples; open in the paper",
    )
    reference_kl_coefficient: Changing[NonNegative] = Field(
        default=0.0,
        description="weight of KL(policy || initial policy) in the loss",
    )
    advantage: Literal["critic", "group"] = Field(
        default="critic",
        description="critic: generalised advantage estimation; group: the return of a copy of an episode less the mean "
        "of the other copies from the same moment on; scale-any: group by default",
    )
    copies: Annotated[int, Field(ge=2, le=1024)] | None = Field(
        default=None, description="copies of each episode, played side by side; scale-any: 8 by default"
    )
    groups: Count = Field(
        default=1,
        description="copies: of each group the same number of decisions, at random, makes up steps_per_epoch; "
        "scale-any: 48 by default",
    )
    horizon_s: Positive | None = Field(
        default=None,
        description="group: what is later by this counts 1/e; scale-any: 15 by default, 3 times a mean task of the "
        "family; null: all counts",
    )
    final_sharpness: Positive = Field(
        default=1.0, description="scale-any: factor of the logits at the end of a training; it starts at 1"
    )
    validation_instances: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=0,
        description="episodes by which the best policy is chosen, the untrained one among them, deciding by argmax; "
        "scale-any: 64 by default; 0: the last policy is exported",
    )
    validate_every: Count = Field(default=10, description="epochs between validations")

    @model_validator(mode="after")
    def _parts_agree(self) -> PPO:
        if self.reference_kl_coefficient > 0 and self.initial_policy is None:
            raise ValueError(
                "algorithm.reference_kl_coefficient: there is no policy to stay near; give initial_policy, too"
            )
        if self.advantage == "group" and self.copies is None:
            raise ValueError("algorithm.advantage group: needs algorithm.copies, as scale-any has; valid: critic")
        if self.groups > self.steps_per_epoch:
            raise ValueError(
                f"algorithm.groups {self.groups}: more than algorithm.steps_per_epoch {self.steps_per_epoch}"
            )
        return self


class Imitation(Minibatched):
    """Behaviour cloning: networks of methods with PPO learn an expert's choices by cross-entropy.

    An epoch learns once from each of steps_per_epoch demonstrated decisions.
    """

    name: Literal["imitation"]
    expert: Annotated[str, Refers("scheduler")] = Field(
        description="a scheduler, with parameters as `reserve:waiting=2`, or the folder of an exported policy, or "
        "`zoo:NAME`",
    )
    episodes: Episodes = Field(default=256, description="episodes of demonstrations")
    holdout_episodes: Episodes = Field(default=32, description="more episodes, on which agreement is measured")

    @property
    def policy(self) -> Path | None:
        """Folder of an expert that is a policy; None for other experts.

        Raises:
            UserError: the policy is missing or has changed.
        """
        spec = parse_scheduler(self.expert)
        return spec.folder("algorithm.expert") if isinstance(spec, PolicySpec) else None


class OffPolicy(Rewarded):
    """Settings of DQN and SAC, which the paper names without settings."""

    buffer_size: Annotated[int, Field(ge=1024, le=MAX_ROWS)] = Field(
        default=50_000, description="transitions, drawn uniformly"
    )
    batch_size: Rows = Field(default=64, description="transitions of a gradient step")
    warmup_steps: Count = Field(default=2048, description="env steps before the first update")
    steps_per_update: Count = Field(default=4, description="env steps per gradient step")
    steps_per_round: Annotated[int, Field(ge=1, le=512)] = Field(
        default=64, description="env steps sampled with the same weights between updates"
    )
    gradient_clip: Changing[Positive] = Field(default=10.0, description="global norm of each optimizer's parameters")
    adam_epsilon: Positive = Field(default=1e-8, description="gradients are far smaller than in PPO")


class DQN(OffPolicy):
    """Dueling double DQN, epsilon-greedy."""

    name: Literal["dqn"]
    learning_rate: Changing[LearningRate] = Field(default=5e-4, description="learning rate of Adam")
    target_update_steps: Count = Field(default=2048, description="env steps between copies to the target network")
    epsilon_initial: Fraction = Field(default=1.0, description="share of random decisions at the beginning")
    epsilon_final: Fraction = Field(default=0.05, description="share of random decisions after epsilon_steps")
    epsilon_steps: Count = Field(default=50_000, description="env steps over which epsilon falls linearly")
    double: bool = Field(default=True, description="the next decision is chosen by the present network")
    dueling: bool = Field(default=True, description="values are the state's and the advantages of servers")
    critic_hidden: Width = Field(default=64, description="dueling: hidden layer of the state's value")


class SAC(OffPolicy):
    """Discrete SAC with twin Q-networks."""

    name: Literal["sac"]
    learning_rate: Changing[LearningRate] = Field(
        default=3e-4, description="learning rate of policy, Q-networks and temperature"
    )
    target_rate: Changing[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=0.005, description="tau of the target networks, at every gradient step"
    )
    initial_temperature: Positive = Field(default=0.1, description="temperature that training begins with")
    target_entropy_share: Changing[Annotated[float, Field(ge=0, lt=1)]] = Field(
        default=0.1, description="target entropy as a share of ln of the servers that may be chosen, N without a mask"
    )


class WholeEpisodes(Drawn):
    """Algorithms that play whole episodes, at least one for each number of servers."""

    name: Literal["cma", "es", "reinforce"]
    epochs: Count
    instances: Episodes
    validation_instances: Episodes
    validate_every: Count = Field(default=10, description="epochs between validations; the best weights are exported")

    @model_validator(mode="after")
    def _sizes_have_instances(self) -> WholeEpisodes:
        sizes = len(self.problems.servers) if self.problems else 1
        for key in ("instances", "validation_instances"):
            if (found := getattr(self, key)) < sizes:
                raise ValueError(
                    f"algorithm.{key} {found}: must be at least {sizes}, one for each of algorithm.problems.servers"
                )
        return self


class Searched(WholeEpisodes):
    """A search over the weights of a rule; a generation is an epoch.

    A score is the mean of ln(objective [s]) over numbers of servers and instances. All candidates of a generation play
    the same instances; each generation plays new ones.
    """

    name: Literal["cma", "es"]
    rule: Literal["context-price", "adaptive-price", "release-index", "scale-release"] = Field(
        default="context-price", description="what is searched: each is a method"
    )
    epochs: Count = Field(default=150, description="generations")
    population: Annotated[int, Field(ge=4, le=10_000)] = Field(default=20, description="candidates of a generation")
    instances: Episodes = Field(
        default=12,
        description="episodes of each candidate, with evenly spread loads; larger clusters have fewer episodes, and "
        "all numbers of servers have the same weight",
    )
    objective: Literal["response", "balanced"] = Field(
        default="balanced",
        description="response: the mean response time; balanced: 80 % of it and 10 % each of mean and 95th percentile "
        "of the job completion time. release-index and scale-release have their own: "
        "the mean time of calls, of those whose 99th percentiles of calls and turns stay below those of its reference",
    )
    initial: PriceParameters | Literal["dual-price"] = Field(
        default=PriceParameters(),
        description="context-price: initial rule: price, with constant prices; or dual-price, with prices by the "
        "observed load, for workloads far from those of price",
    )
    initial_step: Positive = Field(
        default=0.3,
        description="initial standard deviation of each weight; in proportion larger where the weights of its row are "
        "above 10; for adaptive-price about a quarter of it",
    )
    validation_instances: Episodes = Field(default=32, description="episodes that validate the mean of the search")
    base: str = Field(
        default="lmetric:gate=0.95,order=3",
        description="release-index, scale-release: the rule for replicas that places calls and orders those that are "
        "held; where none is better, release-index exports it, and scale-release as what it began",
    )
    reference: str | None = Field(
        default=None,
        description="release-index, scale-release: the rule for replicas that candidates are compared with, and whose "
        "99th percentiles bound theirs; null: base",
    )
    initial_policy: Annotated[str, Refers("policy")] | None = Field(
        default=None,
        description="scale-release: folder of an exported policy of release, or `zoo:NAME`, as which it begins; null: "
        "it begins as its base",
    )

    @property
    def asks(self) -> Literal["scores", "starts"] | None:
        """Scores of candidates, where a network says which call goes."""
        return "scores" if self.rule == "scale-release" else None

    @property
    def releases(self) -> bool:
        """Whether it says which held call goes, behind the gate of `base`."""
        return self.rule in ("release-index", "scale-release")

    @property
    def compared_with(self) -> str:
        """The rule whose tails bound those of one that releases."""
        return self.reference or self.base

    @model_validator(mode="after")
    def _releases_behind_a_gate(self) -> Searched:
        if self.initial_policy is not None and self.rule != "scale-release":
            raise ValueError(f"algorithm.initial_policy: {self.rule} has an initial rule of its own; leave it out")
        if not self.releases:
            for key in ("base", "reference"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"algorithm.{key}: {self.rule} has none; leave it out")
            return self
        if self.objective != type(self).model_fields["objective"].default:
            raise ValueError(f"algorithm.objective: {self.rule} has one of its own; leave it out")
        for key, rule in (("base", self.base), ("reference", self.compared_with)):
            spec = parse_scheduler(rule)
            parameters = spec.parameters if isinstance(spec, RuleSpec) else None
            if not isinstance(parameters, GateParameters) or not parameters.gate:
                raise ValueError(
                    f"algorithm.{key} {rule}: is no rule for replicas with a gate; valid: lmetric:gate=1, ..."
                )
        return self

    @model_validator(mode="after")
    def _begins_as_its_rule(self) -> Searched:
        if self.rule != "context-price" and self.initial != PriceParameters():
            raise ValueError(f"algorithm.initial: {self.rule} has an initial rule of its own; leave it out")
        return self


class CMAES(Searched):
    """A search by CMA-ES, of which only the diagonal of the covariance is learned."""

    name: Literal["cma"]


class ES(Searched):
    """A search by steps of Adam; pairs of candidates on either side of the mean estimate the gradient."""

    name: Literal["es"]
    learning_rate: LearningRate = Field(default=0.1, description="of Adam, in units of the initial steps of the rule")
    ranks: bool = Field(
        default=True, description="the search sees the ranks of the scores of a generation in place of the scores"
    )

    @model_validator(mode="after")
    def _candidates_are_pairs(self) -> ES:
        if self.population % 2:
            raise ValueError(f"algorithm.population {self.population}: es plays pairs; valid: even numbers")
        return self


class Reinforce(WholeEpisodes):
    """Policy gradient (REINFORCE) of the methods `decima` and `deeprm`.

    An epoch plays `instances` workloads, each in `episodes` episodes that differ in the policy's draws only, and makes
    one step of Adam. The baseline of an episode's cost from a time on is the mean of the other episodes from that time:
    they replay the same arrivals, which cancel.
    """

    name: Literal["reinforce"]
    epochs: Count = Field(default=200, description="steps of Adam")
    learning_rate: LearningRate = Field(default=3e-3, description="learning rate of Adam")
    instances: Episodes = Field(default=2, description="new workloads of an epoch, with evenly spread loads")
    episodes: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=8, description="episodes of each workload, whose mean is the baseline"
    )
    objective: Literal["tasks", "workflows"] = Field(
        default="tasks",
        description="cost is the number in the system, integrated over time, of tasks of arrived workflows (mean "
        "response time) or of workflows (mean job completion time, as in both papers)",
    )
    discount_s: Positive | None = Field(
        default=30.0, description="time in which the weight of later costs falls to 1/e [s]; null: all count the same"
    )
    gradient_clip: Positive = Field(default=1.0, description="global norm")
    entropy_coefficient: NonNegative = Field(
        default=0.01, description="initial coefficient; it falls linearly to the final one"
    )
    final_entropy_coefficient: NonNegative = Field(default=0.0, description="coefficient after `epochs`")
    validation_instances: Episodes = Field(default=8, description="episodes that validate the policy, by argmax")

    @property
    def asks(self) -> Literal["scores", "starts"] | None:
        """The next start."""
        return "starts"


AnyAlgorithm = Annotated[PPO | Imitation | DQN | SAC | CMAES | ES | Reinforce, Field(discriminator="name")]
ALGORITHM_MODELS = models_of(AnyAlgorithm)
"""Name of an algorithm -> its model."""
