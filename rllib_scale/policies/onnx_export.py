"""A trained network as an ONNX file, which decides without this package: states and masks in, logits and choices out.

Inputs, of a batch of B states with N servers each:

    task      (B, F) float32: features of the state, then of the task
    servers   (B, N, G) float32: features of each server; capacity 0 marks an empty row, which is never chosen
    mask      (B, N) bool: servers that may be chosen; with none of them, all but the empty ones may

Outputs: `logits` (B, N) float32, MASKED lower where the mask closes a server; `choice` (B,) int64, the first of the
highest. The file's metadata say what the features are and in which units.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rllib_scale import __version__
from rllib_scale.errors import UserError, extra
from rllib_scale.files import write_atomic
from rllib_scale.networks.build import Network
from rllib_scale.networks.cross_attention import CrossAttentionPointer
from rllib_scale.networks.mlp import StructuredMLP
from rllib_scale.observation.feature_sets import FEATURE_SETS, Feature
from rllib_scale.policies.policy import TrainedPolicy

NEEDS = ("onnx", "onnxscript")


def export_onnx(policy: Any, path: Path) -> dict[str, str]:
    """Write the network of a policy as ONNX.

    Args:
        policy: as `load_policy` gives it; its mask and decision are left to the caller of the file.
        path: of the file, replaced where there is one.

    Returns:
        The metadata of the file: what it is, its inputs' features and units (JSON), and for how many servers.

    Raises:
        UserError: it has no network, the extra `onnx` is not installed, or the file cannot be written.
    """
    if policy.trial.network is None:
        raise UserError(
            f"{policy.name}: a policy of method {policy.trial.method} has no network to export; valid: one of any other"
        )
    if policy.trial.dispatches:
        raise UserError(
            f"{policy.name}: a policy of method {policy.trial.method} decides from whole states, start after start, "
            "and the file's inputs are those of one task; valid: one of a method that decides task by task, as scale"
        )
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise UserError(f"--onnx: {' and '.join(missing)} not installed; {extra('onnx')}")
    facts = _facts(policy)
    program = _traced(policy.network)
    program.model.metadata_props.update(facts)
    program.model.producer_name, program.model.producer_version = "rllib-scale", __version__
    content = program.model_proto.SerializeToString()
    write_atomic(path, lambda place: place.write_bytes(content))
    return facts


class _Decider(torch.nn.Module):
    """The network between the inputs and outputs of the file."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).eval()
        if isinstance(self.network, CrossAttentionPointer):
            # As a matrix product, a runtime rounds the last servers differently: equal ones would no longer tie.
            self.network.point = _point_one_by_one  # type: ignore[method-assign]

    def forward(self, task: Tensor, servers: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """See the module."""
        logits = self.network(torch.cat((task, servers.flatten(1)), 1), mask)[1]
        return logits, logits.argmax(1)


def _point_one_by_one(w: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
    """`CrossAttentionPointer.point`, one server at a time."""
    return (w[:, None] * hidden).sum(-1) + bias


def _traced(network: Network) -> Any:
    """The ONNX program of a network, any number of states, and of servers where it takes any."""
    spec = network.inputs.spec
    fixed = network.num_servers if isinstance(network, StructuredMLP) else None
    states, servers = 2, fixed or 6
    batch: Any = torch.export.Dim("batch")
    rows: Any = {0: batch} if fixed else {0: batch, 1: torch.export.Dim("servers")}
    example = (
        torch.zeros(states, spec.task_dim),
        torch.ones(states, servers, spec.server_dim),
        torch.ones(states, servers, dtype=torch.bool),
    )
    log = logging.getLogger("torch.onnx")  # hides its warning about torchvision, which is not used
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                _Decider(network).eval(),
                example,
                dynamo=True,
                verbose=False,
                input_names=["task", "servers", "mask"],
                output_names=["logits", "choice"],
                dynamic_shapes={"task": {0: batch}, "servers": rows, "mask": rows},
            )
    finally:
        log.setLevel(level)


def _facts(policy: TrainedPolicy) -> dict[str, str]:
    trial = policy.trial
    features = FEATURE_SETS[policy.observation.feature_set]
    return {
        "format": "rllib-scale-onnx 1",
        "rllib_scale_version": __version__,
        "policy": policy.name,
        "method": trial.method,
        "seed": str(trial.seed),
        "epochs": str(policy.epochs),
        "observation": json.dumps(policy.observation.model_dump(mode="json"), sort_keys=True),
        "task_features": _described((*features.context, *features.task)),
        "server_features": _described(features.server),
        "mask": "idle servers with the memory, and those that it may wait for"
        if policy.reserves
        else "idle servers with the memory; all true for a policy without a mask",
        "servers": "any" if trial.any_scale else str(trial.env.cluster.num_rows),
    }


def _described(features: tuple[Feature, ...]) -> str:
    return json.dumps([{"name": f.name, "unit": f.unit, "description": f.description} for f in features])
