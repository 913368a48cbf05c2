"""Strict, immutable models of a cluster, a workload, a training and a sweep.

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
)
from rllib_scale.config.cluster import (
    PAPER_TIERS,
    ChangeConfig,
    ChangesConfig,
    ClusterConfig,
    TierConfig,
    scale_counts,
)
from rllib_scale.config.methods import METHODS, Preset, method_in
from rllib_scale.config.network import (
    AttentionModelConfig,
    CrossAttentionConfig,
    CustomEncoderConfig,
    DecimaConfig,
    DeepRMConfig,
    DeepSetsConfig,
    MLPConfig,
    SetTransformerConfig,
)
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
from rllib_scale.config.scenarios import SCENARIOS, scenario
from rllib_scale.config.training import ProblemsConfig, SRRConfig, StopConfig, TrialResources
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
