"""Commands about trained policies: zoo, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from rllib_scale.cli.options import code_option
from rllib_scale.cli.terminal import console, json_option, say, show, wants_json
from rllib_scale.errors import UserError


@click.command()
@click.argument("name", required=False)
@json_option
def zoo(name: str | None) -> None:
    """List the policies that come with the package, or print the card of NAME.

    zoo:NAME stands wherever the folder of a policy does: `rllib-scale simulate --scheduler zoo:scale`.
    """
    from rllib_scale import zoo as policies

    if name is not None:
        _show_card(policies.card(name))
        return
    table, content = Table("name", "what it is", "method", "seed"), []
    for each in policies.names():
        card = policies.card(each)
        table.add_row(policies.PREFIX + each, card["summary"], card["method"], str(card["seed"]))
        content.append({"name": policies.PREFIX + each} | {key: card[key] for key in ("summary", "method", "seed")})
    show(table, content)


RESULTS = (
    "Mean response over all tasks, and by how much it is below (-) or above that of fastest-idle on the same episodes; "
    "95 % intervals: of this policy over episodes; of all seeds of its method, where the rows hold them, over both"
)


def _show_card(card: dict[str, Any]) -> None:
    table = Table(title=RESULTS, title_justify="left")
    for column in ("scenario", "mask"):
        table.add_column(column)
    for column in ("servers", "policy (s)", "fastest-idle (s)", "policy (%)", "all seeds (%)"):
        table.add_column(column, justify="right")
    for row in card["results"]:
        table.add_row(
            *(row["scenario"], row["mask"], str(row["servers"])),
            *(f"{row[key]:.2f}" for key in ("response_s", "base_response_s")),
            *(_interval(*row[key]) if key in row else "" for key in ("percent", "percent_of_all_seeds")),
        )
    if wants_json():
        show(table, card)
        return
    say(f"{card['name']}: {card['summary']}")
    say(f"It {card['decides']}.")
    say(f"Made by `{card['command']}` ({card['part_of']}), {card['chosen']}: {card['made_on']}")
    say(f"The rows, and what was made of them: {card['page']}")
    console.print(table)
    for line in card["limits"]:
        say(f"- {line}")


def _interval(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:+.1f}" if low is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


@click.command()
@click.argument("policy")
@click.option("--onnx", type=click.Path(path_type=Path), required=True, help="Write this file.")
@code_option
@json_option
def export(policy: str, onnx: Path, trust: bool) -> None:
    """Write the network of POLICY, a folder or zoo:NAME, as ONNX: states and masks in, logits and choices out.

    Any number of states at once, and of servers but for an MLP's. docs/library.md has a consumer. Extra `onnx`.
    """
    from rllib_scale.files import check_writable
    from rllib_scale.policies.onnx_export import export_onnx
    from rllib_scale.policies.policy import load_policy

    if onnx.suffix != ".onnx":
        raise UserError(f"--onnx {onnx}: must end in .onnx")
    check_writable({"--onnx": onnx})
    facts = export_onnx(load_policy(policy, trust=trust), onnx)
    table = Table("metadata", "value", title=f"{onnx}: {onnx.stat().st_size:,} bytes", title_justify="left")
    shown = ("policy", "method", "servers", "mask", "rllib_scale_version")
    for key in shown:
        table.add_row(key, facts[key])
    show(table, {"file": str(onnx), **facts})
