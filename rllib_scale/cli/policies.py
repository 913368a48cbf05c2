"""Commands about trained policies: zoo, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

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
        _show_card(name, policies.card(name))
        return
    table, content = Table("name", "what it is", "method", "seed"), []
    for each in policies.names():
        card = policies.card(each)
        table.add_row(policies.PREFIX + each, card["summary"], card["method"], str(card["seed"]))
        content.append({"name": policies.PREFIX + each} | {key: card[key] for key in ("summary", "method", "seed")})
    show(table, content)


def _show_card(name: str, card: dict[str, Any]) -> None:
    title = "; ".join(card["columns"])
    table = Table(title=title, title_justify="left")
    for column in ("scenario", "mask", "servers", "this policy (s)", "fastest-idle (s)", "this policy", "all seeds"):
        table.add_column(column, justify="left" if column in ("scenario", "mask") else "right")
    for row in card["results"]:
        table.add_row(
            *(row["scenario"], row["mask"], str(row["servers"])),
            *(f"{row[key]:.2f}" for key in ("response_s", "base_response_s")),
            f"{row['percent']:+.1f} %",
            _interval(row["percent_of_all_seeds"], row["seeds"]),
        )
    if wants_json():
        show(table, card)
        return
    say(f"{card['name']}: {card['summary']}")
    for key in ("decides", "command", "chosen", "rows"):
        say(f"  {key}: {card[key]}")
    console.print(table)
    for line in card["limits"]:
        say(f"- {line}")


def _interval(percent: list[float], seeds: int) -> str:
    mean, low, high = percent
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] % ({seeds})"


@click.command()
@click.argument("policy")
@click.option("--onnx", type=click.Path(path_type=Path), required=True, help="Write this file.")
@json_option
def export(policy: str, onnx: Path) -> None:
    """Write the network of POLICY, a folder or zoo:NAME, as ONNX: states and masks in, logits and choices out.

    Any number of states at once, and of servers but for an MLP's. docs/library.md has a consumer. Extra `onnx`.
    """
    from rllib_scale.files import check_writable
    from rllib_scale.policies.onnx_export import export_onnx
    from rllib_scale.policies.policy import load_policy

    if onnx.suffix != ".onnx":
        raise UserError(f"--onnx {onnx}: must end in .onnx")
    check_writable({"--onnx": onnx})
    facts = export_onnx(load_policy(policy), onnx)
    table = Table("metadata", "value", title=f"{onnx}: {onnx.stat().st_size:,} bytes", title_justify="left")
    shown = ("policy", "method", "servers", "mask", "rllib_scale_version")
    for key in shown:
        table.add_row(key, facts[key])
    show(table, {"file": str(onnx), **facts})
