"""Odd inputs of every kind, for commands that need no Ray: files cut, changed and mixed up, and values out of range."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from click.testing import CliRunner

from artificial_results import artificial_episodes, artificial_training, write_folder
from config.test_malformed import settings, with_setting
from networks.observations import random_network
from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.policies.policy import save_policy
from workloads.mutations import WRONG, mutations
from workloads.trace_samples import copilot_sample, csv_sample, kv_sample, tracelab_sample, write_csv

Rng = np.random.Generator
TASK = {"compute_gflop": 9.0, "memory_gb": 12.0, "output_gb": 0.4}
TEXTS = ("", " ", "\0", "a\0b", "\x1b[31m", "1_0", "٣", "1e308", "-1", "nan", "inf", "1e30", "x" * 300, "../..", "*")
TEXTS += ("null", "[]", "{}", "0", "1e-300", "/dev/zero", "a:b", "a=b", "=", ",", "zoo:", "é", "9" * 400, "\n")
ARGUMENTS = tuple(text for text in TEXTS if "\0" not in text)
"""A process gets no NUL byte."""
NUMBERS = (0, -1, 1, 2, 0.5, 8, 1e-15, 1e-17, 1e-300, 1e12, 1e15, 1e30, 1e300, 10**9, 10**12, 10**19, 10**400)
NUMBERS += (math.nan, math.inf, -math.inf)
"""Values of a kind that fits, out of range."""


@dataclass(frozen=True)
class Case:
    """A command, the files that it finds in its folder, and the one that a refusal must name."""

    kind: str
    command: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    named: str = ""


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def workload(tasks: list[list[dict[str, Any]]], edges: list[list[int]]) -> dict[str, Any]:
    workflows = [{"arrival_s": 0.5 * w, "tasks": each, "edges": edges} for w, each in enumerate(tasks)]
    return {"format": "rllib-scale-workload", "version": 1, "workflows": workflows}


GOOD = workload([[TASK] * 2] * 3, [[0, 1]])


def workloads(rng: Rng) -> Iterator[Case]:
    for content in mutations(int(rng.integers(2**31)), GOOD):
        command = ("evaluate", "fastest-idle", "--scales", "4", "--workload", "w.json")
        yield Case("workload file", command, {"w.json": content}, "w.json")


def policies(rng: Rng, folder: Path) -> Iterator[Case]:
    save_policy(folder, random_network(method="ppo"), TrialConfig.of("ppo"), epochs=1)
    files = {f"p/{path.name}": path.read_bytes() for path in folder.iterdir()}
    for content in mutations(int(rng.integers(2**31)), json.loads(files["p/policy.json"])):
        command = ("evaluate", "./p", "--scales", "16", "--episodes", "1", "--horizon", "3")
        yield Case("policy file", command, files | {"p/policy.json": content}, "p: policy.")


SWEEP = {
    "name": "bad",
    "methods": ["scale", "crossattn"],
    "grid": {"srr.lambda_kl": [0, 0.1]},
    "algorithm": {"problems": {"servers": [8]}},
    "evaluation": {"scales": [4], "episodes": 1, "heuristics": ["reserve:waiting=2"], "scenarios": ["paper"]},
}


def sweeps(rng: Rng) -> Iterator[Case]:
    for content in mutations(int(rng.integers(2**31)), SWEEP):
        yield Case("sweep file", ("validate", "s.yaml"), {"s.yaml": content}, "s.yaml")


def sweep_settings(rng: Rng) -> Iterator[Case]:
    paths = [path for path, _ in settings()]
    methods = ("scale", "crossattn", "ppo", "dqn", "sac", "scale-any", "context-price", "decima", "deeprm")
    while True:
        path, value = pick(rng, paths), pick(rng, (*NUMBERS, *NUMBERS, *TEXTS, *WRONG))
        value = [value] if rng.integers(4) == 0 else value
        data = with_setting(path, value) | {"methods": [pick(rng, methods)]}
        data |= {"scenario": "steady-0.7"} if rng.integers(2) else {}
        text = yaml.safe_dump(data).encode() if rng.integers(8) else yaml.safe_dump(data).encode() + b"\0"
        yield Case("sweep setting", ("validate", "s.yaml"), {"s.yaml": text}, "s.yaml")


def problem_settings(rng: Rng) -> Iterator[Case]:
    paths = [path for path, _ in settings(EnvConfig)]
    while True:
        path, value = pick(rng, paths), pick(rng, (*NUMBERS, *NUMBERS, *TEXTS, *WRONG))
        value = [value] if rng.integers(4) == 0 else value
        where, files = ("--set", f"{path}={json.dumps(value)}"), {}
        if rng.integers(2):
            data: Any = value
            for key in reversed(path.split(".")):
                data = {key: data}
            where, files = ("--config", "c.yaml"), {"c.yaml": yaml.safe_dump(data).encode()}
        scenario = pick(rng, ("paper", "steady-0.7", "day"))
        scheduler = pick(rng, ("fastest-idle", "reserve", "heft", "dual-price", "zoo:context-price"))
        command = ("simulate", "--scenario", scenario, "--horizon", "3", "--scheduler", scheduler, *where)
        yield Case("problem setting", command, files)


def options(rng: Rng) -> Iterator[Case]:
    """An option of a command that takes a value, with an odd one."""
    needed = {"bounds": ("paper",), "evaluate": ("fastest-idle",), "import": ("csv", "."), "fit-workload": ("w.json",)}
    needed |= {"export": ("zoo:scale",), "report": (".",), "status": (".",), "validate": ("s.yaml",), "zoo": ()}
    files = {"w.json": json.dumps(GOOD).encode(), "s.yaml": json.dumps(SWEEP).encode()}
    commands = {name: main.commands[name] for name in (*needed, "simulate")}
    while True:
        name = pick(rng, list(commands))
        chosen = pick(rng, [p for p in commands[name].params if not getattr(p, "is_flag", False)])
        value = str(pick(rng, (*ARGUMENTS, *NUMBERS, "w.json", "w.json/x", ".", "s.yaml")))[:4000]
        if value in files and chosen.name in ("output", "save_workload", "trace"):
            continue  # they may replace a file that the command does not read
        arguments = list(needed.get(name, ()))
        if chosen.param_type_name == "argument":
            arguments = [value]
        else:
            arguments += [chosen.opts[0], value]
        small = {"simulate": ["--servers", "4"], "evaluate": ["--scales", "4", "--episodes", "1"], "bounds": []}
        if name in small and chosen.name not in ("servers", "scales", "episodes"):
            arguments += small[name]
        yield Case("option", (name, *arguments), files)


def csv_files(rng: Rng, folder: Path) -> Iterator[Case]:
    while True:
        tasks, edges = csv_sample()
        rows = pick(rng, (tasks, tasks, edges))
        row = pick(rng, rows)
        row[pick(rng, list(row))] = pick(rng, (*TEXTS, "0", "5", "start"))
        rows += [dict(pick(rng, rows))] if rng.integers(6) == 0 else []
        files = {
            name: write_csv(folder / name, rows).read_bytes()
            for name, rows in (("tasks.csv", tasks), ("edges.csv", edges))
        }
        output = pick(rng, ("w.json",) * 5 + ("tasks.csv", "edges.csv", "link.json"))
        yield Case("CSV import", ("import", "csv", ".", "--output", output), files)


def recordings(rng: Rng) -> Iterator[Case]:
    samples = {"copilot": copilot_sample(), "kv-cache-tester": kv_sample(), "tracelab": tracelab_sample()[0]}
    streams = {name: mutations(int(rng.integers(2**31)), good) for name, good in samples.items()}
    while True:
        name = pick(rng, list(streams))
        content = next(streams[name])
        file, output = pick(rng, (("s/r.json", "w.json"), ("s/r.jsonl", "w.json"), ("s/r.json", "s/r.json")))
        yield Case("recording import", ("import", name, "s", "--output", output), {file: content.replace(b"\n", b" ")})


def fits(rng: Rng) -> Iterator[Case]:
    while True:
        count, tasks = int(rng.integers(1, 60)), int(rng.integers(1, 4))
        task = TASK | {pick(rng, list(TASK)): pick(rng, (0.0, 1e-300, 1e-9, 1.0, 1e15, 1e300))}
        edges = [[i, i + 1] for i in range(tasks - 1)] if rng.integers(2) else []
        output = pick(rng, ("t.json", "t.json", "w.json", "t.csv", "t"))
        command = ("fit-workload", "w.json", "--output", output)
        yield Case("fit", command, {"w.json": json.dumps(workload([[task] * tasks] * count, edges)).encode()})


def results(rng: Rng, folder: Path) -> Iterator[Case]:
    """A results folder with a table or a manifest that is not as a sweep leaves it."""
    episodes = artificial_episodes((42, 43), (16, 32), ("scale", "fastest-idle", "ppo"), 3)
    write_folder(folder, episodes, artificial_training((42, 43), ("scale",), 5))
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files["manifest.json"])
    manifests = mutations(int(rng.integers(2**31)), manifest)
    while True:
        command = (pick(rng, ("report", "report", "status")), ".")
        if rng.integers(2):
            odd = {"versions": "x", "host": 3, "config": [], "plan": 1, "sweep": None, "created": [], "tables": "x"}
            key = pick(rng, list(odd))
            content = pick(rng, (next(manifests), json.dumps(manifest | {key: odd[key]}).encode(), b"[" * 100_000))
            yield Case("manifest", command, files | {"manifest.json": content})
            continue
        name = pick(rng, [name for name in files if name.endswith(".parquet")])
        frame = pd.read_parquet(folder / name)
        column, kind = pick(rng, list(frame)), rng.integers(6)
        if kind == 0:
            frame = frame.drop(columns=column)
        elif kind == 1:
            frame[column] = None
        elif kind == 2:
            frame = pd.concat([frame, frame.sample(3, random_state=1, replace=True)])
        else:
            is_text = frame[column].dtype == object or str(frame[column].dtype) in ("string", "str")
            values = (
                ("", "\x1b[31m", "\0", "a" * 300, "</script>", None) if is_text else (math.nan, -1, 1e300, math.inf)
            )
            value = pick(rng, values)
            frame = frame.astype({column: object if is_text else "float64"})
            frame.loc[frame.index[0] if kind < 5 else frame.index, column] = value
        frame.to_parquet(folder / "odd.parquet")
        yield Case("table", command, files | {name: (folder / "odd.parquet").read_bytes()})
        (folder / "odd.parquet").unlink()


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Without end, one of each kind after the other; `folder` is for files that are made on the way."""
    kinds = [workloads, sweeps, sweep_settings, problem_settings, options, recordings, fits]
    in_folder: list[Callable[[Rng, Path], Iterator[Case]]] = [policies, csv_files, results]
    streams = [kind(np.random.default_rng([seed, i])) for i, kind in enumerate(kinds)]
    for i, kind in enumerate(in_folder):
        own = folder / kind.__name__
        own.mkdir()
        streams.append(kind(np.random.default_rng([seed, 100 + i]), own))
    for stream in itertools.cycle(streams):
        yield next(stream)


def outcome(case: Case, folder: Path) -> str:
    """How a case ends in the working folder: "runs", the line that refuses it, or another text with what is wrong."""
    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    done = CliRunner().invoke(main, list(case.command))
    if lost := [name for name, content in case.files.items() if (folder / name).read_bytes() != content]:
        return f"overwrote {lost}"
    if done.exit_code == 0 and done.exception is None:
        return "runs"
    lines = done.stderr.splitlines()
    if done.exit_code == 2 and len(lines) == 1 and lines[0].startswith("Error: ") and case.named in lines[0]:
        return lines[0]
    return f"exit code {done.exit_code}, {done.exception!r}, {lines[-3:]}"
