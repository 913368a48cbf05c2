"""From a trial to its network."""

from __future__ import annotations

from importlib import import_module

import torch
from torch import nn

from rllib_scale import plugins
from rllib_scale.config import TrialConfig
from rllib_scale.config.network import (
    AttentionModelConfig,
    CrossAttentionConfig,
    CustomEncoderConfig,
    EncoderConfig,
    MLPConfig,
    SetTransformerConfig,
)
from rllib_scale.errors import UserError
from rllib_scale.networks.cross_attention import CrossAttentionPointer, Skip
from rllib_scale.networks.inputs import InputSpec
from rllib_scale.networks.mlp import StructuredMLP
from rllib_scale.networks.pointer import SetPointer
from rllib_scale.networks.set_transformer import SetTransformer
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.observation.replicas import HELD_CALLS, features_of
from rllib_scale.plugins import unpinned
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS

Network = CrossAttentionPointer | SetPointer | StructuredMLP


def input_spec(trial: TrialConfig) -> InputSpec:
    """Layout of the observation that the network of a trial reads."""
    sizes = _sizes(trial)
    features = HELD_CALLS if trial.rule else RELATIVE if trial.visits else features_of(trial.env)
    fixed = sizes.standardise == "fixed"
    head = (*features.context, *features.task)  # columns before the servers: the moment and the one candidate
    return InputSpec(
        task_mean=tuple(f.mean if fixed else 0.0 for f in head),
        task_std=tuple(f.std if fixed else 1.0 for f in head),
        server_mean=tuple(f.mean if fixed else 0.0 for f in features.server),
        server_std=tuple(f.std if fixed else 1.0 for f in features.server),
        server_capacity=[feature.name for feature in features.server].index("capacity"),
    )


def build_network(trial: TrialConfig) -> Network:
    """The untrained network of a trial.

    Raises:
        UserError: its user-defined encoder cannot be imported, or is none.
    """
    sizes = _sizes(trial)
    inputs, d = input_spec(trial), sizes.embedding_dim
    match sizes:
        case CustomEncoderConfig():
            return _own_encoder(sizes.encoder, inputs, d)
        case MLPConfig():
            return StructuredMLP(inputs, trial.env.cluster.num_rows, d, sizes.mlp_hidden)
        case SetTransformerConfig():
            return SetTransformer(inputs, d, sizes.num_heads, sizes.num_blocks, sizes.induced_points)
        case CrossAttentionConfig():
            skip = _skip(sizes, inputs)
            network = CrossAttentionPointer(inputs, d, sizes.num_heads, sizes.num_blocks, skip=skip)
            if trial.rule:  # the gate behind which it says which held call goes
                network.register_parameter("gate", nn.Parameter(torch.zeros(len(GATE_TERMS) + len(PLACE_TERMS))))
            return network
        case AttentionModelConfig():
            return CrossAttentionPointer(inputs, d, sizes.num_heads, sizes.num_blocks, sizes.logit_clip)
        case _:
            module, _, name = sizes.built_by.partition(":")
            encoder: type[SetPointer] = getattr(import_module(f"rllib_scale.networks.{module}"), name)
            return encoder(inputs, d)


def _sizes(trial: TrialConfig) -> EncoderConfig:
    assert isinstance(trial.network, EncoderConfig), f"method {trial.method} has no network over an observation"
    return trial.network


def _own_encoder(name: str, inputs: InputSpec, d: int) -> SetPointer:
    """A user-defined class, made as `DeepSets` is, that has encoded two observations of three servers."""
    found, shown = plugins.load("encoder", name, [])[0], unpinned(name)
    if not (isinstance(found, type) and issubclass(found, SetPointer)):
        valid = "a subclass of rllib_scale.networks.pointer.SetPointer"
        raise UserError(f"encoder {shown!r}: is a {type(found).__name__}; valid: {valid}")
    network: SetPointer = plugins.call("encoder", name, found, inputs, d)
    with torch.no_grad():  # shapes that do not go together are found out before a training
        plugins.call("encoder", name, network, torch.ones(2, inputs.task_dim + 3 * inputs.server_dim))
    return network


def _skip(sizes: CrossAttentionConfig, inputs: InputSpec) -> Skip | None:
    if sizes.skip == "none":
        return None
    skip = Skip(inputs)
    if sizes.skip in ("adaptive", "naive"):
        skip.start_from(inputs, {RELATIVE.server_column("cost"): sizes.skip_sharpness})
    return skip
