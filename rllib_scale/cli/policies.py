"""Commands about trained policies: zoo, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rllib_scale.cli.options import check_outputs, code_option
from rllib_scale.cli.terminal import json_option, say, show, wants_json


@click.command()
@click.argument("name", required=False)
@json_option
def zoo(name: str | None) -> None:
    """List the trained policies in the package, or print the card of NAME.

    zoo:NAME is valid wherever the folder of a policy is: `rllib-scale simulate --scheduler zoo:scale`.
    """
    from rllib_scale import zoo as policies

    if name is not None:
        _show_card(policies.card(name))
        return
    rows = [
        {"name": policies.PREFIX + each} | {key: policies.card(each)[key] for key in ("summary", "method", "seed")}
        for each in policies.names()
    ]
    show(rows, {"name": "name", "description": "summary", "method": "method", "seed": "seed"})


RESULTS = (
    "Mean response over all tasks, and its difference to {base} on the same episodes, in percent (negative is better); "
    "95 % intervals of this policy over episodes, and of all seeds of its method over seeds and episodes"
)


def _show_card(card: dict[str, Any]) -> None:
    if not wants_json():
        say(f"{card['name']}: {card['summary']}")
        say(f"It {card['decides']}.")
        say(f"Made by `{card['command']}` ({card['part_of']}), {card['chosen']}: {card['made_on']}")
        say(f"Rows and their analysis: {card['page']}")
    columns: dict[str, Any] = {name: name for name in ("scenario", "mask", "servers")}
    columns |= {"policy (s)": lambda row: f"{row['response_s']:.2f}"}
    base = card.get("base", "fastest-idle")
    columns |= {f"{base} (s)": lambda row: f"{row['base_response_s']:.2f}"}
    columns |= {"policy (%)": lambda row: _interval(*row.get("percent", ()))}
    columns |= {"all seeds (%)": lambda row: _interval(*row.get("percent_of_all_seeds", ()))}
    show(card["results"], columns, RESULTS.format(base=base), content=card)
    for line in () if wants_json() else card["limits"]:
        say(f"- {line}")


def _interval(mean: float | None = None, low: float | None = None, high: float | None = None) -> str:
    if mean is None:
        return ""
    return f"{mean:+.1f}" if low is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


@click.command()
@click.argument("policy")
@click.option("--onnx", type=click.Path(path_type=Path), required=True, help="Write this file.")
@code_option
@json_option
def export(policy: str, onnx: Path, trust: bool) -> None:
    """Write the network of POLICY, a folder or zoo:NAME, as ONNX, from states and masks to logits and choices.

    It takes any number of states and, except for an MLP, of servers. docs/onnx.md has an example. Needs the extra
    `onnx`.
    """
    from rllib_scale.policies.onnx_export import export_onnx
    from rllib_scale.policies.policy import load_policy

    check_outputs({"--onnx": onnx}, {"--onnx": (".onnx",)})
    facts = export_onnx(load_policy(policy, trust=trust), onnx)
    shown = ("policy", "method", "servers", "mask", "rllib_scale_version")
    rows = [{"metadata": key, "value": facts[key]} for key in shown]
    columns = {"metadata": "metadata", "value": "value"}
    show(rows, columns, f"{onnx}: {onnx.stat().st_size:,} bytes", content={"file": str(onnx), **facts})
