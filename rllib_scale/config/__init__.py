"""What an experiment is: strict, immutable models of a cluster, a workload, a training and a sweep.

Nothing in this package imports torch, gymnasium, numba or ray; only `search`, which draws, imports numpy.
"""

from rllib_scale.config.algorithms import CMAES, DQN, PPO, SAC, Imitation, Reinforce
from rllib_scale.config.base import (
    MAX_SERVERS,
    MIN_SERVERS,
    Count,
    DecisionMode,
    MaskMode,
    Model,
    Seed,
    digest,
    identity,
)
from rllib_scale.config.cluster import (
    PAPER_TIERS,
    ChangeConfig,
    ChangesConfig,
    ClusterConfig,
    TierConfig,
    scale_counts,
)
from rllib_scale.config.methods import METHODS, MethodSpec
from rllib_scale.config.network import DecimaConfig, DeepRMConfig, NetworkConfig
from rllib_scale.config.price_search import CMAConfig
from rllib_scale.config.problem import (
    CommunicationConfig,
    DecisionConfig,
    EnvConfig,
    EpisodeConfig,
    InformationConfig,
    NamedOrder,
    ObservationConfig,
    RewardConfig,
)
from rllib_scale.config.reinforce import ReinforceConfig
from rllib_scale.config.scenarios import SCENARIOS, scenario
from rllib_scale.config.training import (
    DQNConfig,
    ProblemsConfig,
    SACConfig,
    SRRConfig,
    StopConfig,
    TrainingConfig,
    TrialResources,
)
from rllib_scale.config.trial import TrialConfig
from rllib_scale.config.workload import (
    FittedConfig,
    NormalConfig,
    RateWaveConfig,
    SplitConfig,
    Topology,
    TraceConfig,
    WorkloadConfig,
)

__all__ = [
    "CMAES",
    "DQN",
    "MAX_SERVERS",
    "METHODS",
    "MIN_SERVERS",
    "PAPER_TIERS",
    "PPO",
    "SAC",
    "SCENARIOS",
    "CMAConfig",
    "ChangeConfig",
    "ChangesConfig",
    "ClusterConfig",
    "CommunicationConfig",
    "Count",
    "DQNConfig",
    "DecimaConfig",
    "DecisionConfig",
    "DecisionMode",
    "DeepRMConfig",
    "EnvConfig",
    "EpisodeConfig",
    "FittedConfig",
    "Imitation",
    "InformationConfig",
    "MaskMode",
    "MethodSpec",
    "Model",
    "NamedOrder",
    "NetworkConfig",
    "NormalConfig",
    "ObservationConfig",
    "ProblemsConfig",
    "RateWaveConfig",
    "Reinforce",
    "ReinforceConfig",
    "RewardConfig",
    "SACConfig",
    "SRRConfig",
    "Seed",
    "SplitConfig",
    "StopConfig",
    "TierConfig",
    "Topology",
    "TraceConfig",
    "TrainingConfig",
    "TrialConfig",
    "TrialResources",
    "WorkloadConfig",
    "digest",
    "identity",
    "scale_counts",
    "scenario",
]
