"""The network: forward and backward of the whole, fused, as torch modules eager and compiled, and the textbook's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Measure, Work, interleave, rate_measure, ratio_measure
from rllib_scale.config import TrialConfig
from rllib_scale.networks.build import build_network
from rllib_scale.networks.compiled.fused import FusedPointer
from tests.networks.textbook import Textbook

BARS = {16: (1.8, 3.0), 128: (3.5, 5.0), 512: (5.0, 8.0)}


def run(rounds: int, servers: Sequence[int] = (16, 128, 512), batch: int = 256, repeats: int = 40) -> list[Measure]:
    """Forward and backward passes, one thread; `repeats` a run at N = 16 and fewer at larger N.

    The fused pass is held against nn.MultiheadAttention, and against what it could be replaced by: our own torch
    modules as they are, and by torch.compile, where there is a C++ compiler.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours: Any = build_network(TrialConfig.of())
    textbook = Textbook(ours)
    measures = []
    for n in servers:
        observation = torch.rand(batch, 5 + 5 * n)
        count = max(2, repeats * 16 // n)
        works = {
            "ours": _pass(FusedPointer(ours), ours, observation, count),
            "modules": _pass(ours, ours, observation, count),
            "textbook": _pass(textbook, textbook, observation, count),
        }
        others = {"modules": "our torch modules", "textbook": "nn.MultiheadAttention"}
        if has_cxx_compiler():
            torch.compiler.reset()  # else the second N would be compiled for every N
            works["compiled"] = _pass(torch.compile(ours, fullgraph=True, dynamic=False), ours, observation, count)
            others["compiled"] = "our torch modules by torch.compile"
        history = interleave(works, rounds)
        bar, aim = BARS.get(n, (None, None)) if batch == 256 else (None, None)
        at = f"forward + backward, B={batch}, N={n}"
        for other, title in others.items():
            held = {"bar": bar, "aim": aim} if other == "textbook" else {}
            measures.append(ratio_measure(history, "ours", other, f"ours / {title}, {at}", **held))
        measures.append(
            ratio_measure(history, "modules", "textbook", f"our torch modules / nn.MultiheadAttention, {at}")
        )
        measures.append(rate_measure(history, "ours", f"ours, {at}", "passes/s"))
    return measures


def has_cxx_compiler() -> bool:
    """Whether torch.compile works here."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def _pass(forward: Any, network: nn.Module, observation: torch.Tensor, count: int) -> Work:
    def work() -> float:
        for _ in range(count):
            network.zero_grad()
            features, logits = forward(observation)
            (features.square().mean() + logits.square().mean()).backward()
        return count

    return work
