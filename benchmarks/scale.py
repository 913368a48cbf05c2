"""Times of report, status, dashboard, `validate`, a finished sweep and the start of a new one at scale.

Rows are copies of committed ones.

    python -m benchmarks.scale DIR [--rows 1020000] [--variants 996] [--trials 1000]

makes DIR/rows, the transfer study with more settings and episodes; DIR/variants, SCALE, CrossAttn and PPO of the
reproduction, each at many learning rates; and DIR/trials, a finished sweep, and ten times as many trainings without
evaluations. Existing folders stay. Each part is then timed in its own process; `validate`, `again` and `status` of
DIR/trials are whole commands, with their imports. So are `status` and `report` of DIR/rows in a bucket;
`benchmarks.driver` says how the driver of ten times the trials is measured.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from rich.console import Console
from rllib_scale_analysis import load

from benchmarks.__main__ import describe, machine, table
from benchmarks.driver import bucket, measure_memory, measure_start
from benchmarks.measure import Measure
from rllib_scale.config.plan import Plan, Trial, training_row
from rllib_scale.files import write_atomic, write_json
from rllib_scale.loading import load_sweep
from rllib_scale.results import dataset
from rllib_scale.results import tables as results
from rllib_scale.results.columns import EPISODE_COLUMNS, METRIC_COLUMNS, TRAINING_COLUMNS, UTILISATION_PREFIX
from rllib_scale.results.status import POLICY_FILES
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan

ROOT = Path(__file__).parents[1]
REPRODUCTION = [ROOT / "analysis" / "studies" / "reproduction" / part for part in ("table4", "table3")]
"""Committed rows of SCALE, CrossAttn and PPO."""
TIMES = ("response_mean_s", "response_censored_s", "jct_mean_s", "jct_p95_s", "sojourn_mean_s")
"""Columns in which a copy differs: values of its source times a factor near 1."""
AIMS = {
    ("rows", "report"): 60.0,
    ("rows", "status"): 3.0,
    ("variants", "report"): 60.0,
    ("variants", "status"): 5.0,
    ("variants", "compare"): 3.0,
    ("variants", "training"): 3.0,
    ("variants", "episode"): 3.0,
}
"""Seconds at most, at the default sizes."""
AIMS_OF_COMMANDS = {"validate": 10.0, "again": 8.0, "status": 5.0, "status of ten times as many": 5.0}
"""CPU seconds at most: `validate` of ten times the trials of DIR/trials, the finished `sweep` once more, `status`."""
VIEWS = ("evaluations", "training", "compare", "episode", "runs")
SETTINGS_OF_ROWS = 4
"""Learning rates of DIR/rows: 18 variants. Its other rows are more episodes."""


def make_rows(folder: Path, rows: int) -> None:
    """A results folder of about `rows` rows in 16 scenarios: few variants, many episodes."""
    source = ROOT / "analysis" / "studies" / "transfer"
    episodes = load(source).episodes
    learned = int((episodes["kind"] == "learned").sum())
    copies = max(1, round(rows / (SETTINGS_OF_ROWS * learned + len(episodes) - learned)))
    changes = [f"grid.algorithm.learning_rate={_rates(SETTINGS_OF_ROWS)}", f"evaluation.episodes={30 * copies}"]
    _make(folder, ROOT / "tune_configs" / "transfer.yaml", changes, [source], episodes, copies)


def make_variants(folder: Path, variants: int) -> None:
    """A results folder of a number of trained variants: one training each, with its curve of 1000 epochs."""
    methods = ("scale", "crossattn", "ppo")
    found = load(*REPRODUCTION)
    episodes = found.episodes
    paper = (episodes["scenario"] == "paper") & (episodes["mask"] == "none") & (episodes["test_servers"] <= 48)
    known = (episodes["kind"] == "heuristic") | episodes["method"].isin(methods)
    rates = _rates(variants // len(methods))
    changes = ["seeds=[42]", "methods=[scale,crossattn,ppo]", f"grid={{algorithm.learning_rate: {rates}}}"]
    changes += ["evaluation.scales=[16,32,48]", "evaluation.masks=[none]"]
    _make(
        folder, ROOT / "tune_configs" / "table4.yaml", changes, REPRODUCTION, episodes[paper & known], 1, found.training
    )


def _rates(count: int) -> list[float]:
    return [round(1e-4 * (1 + k / count), 9) for k in range(count)]


def _make(
    folder: Path,
    sweep_file: Path,
    changes: list[str],
    homes: Sequence[Path],
    episodes: pd.DataFrame,
    copies: int,
    training: pd.DataFrame | None = None,
) -> None:
    plan = _opened(folder, sweep_file, changes)
    lambdas = ["lambda_decorrelation", "lambda_kl"]
    sources: dict[Any, pd.DataFrame] = {}
    for key, rows in episodes[episodes["kind"] == "learned"].groupby(["method", "train_seed", *lambdas]):
        sources[key] = rows
    tables, epochs, trained = [_more_episodes(episodes[episodes["kind"] == "heuristic"], copies)], [], []
    for number, trial in enumerate(plan.trials):
        weights = [getattr(trial.config.srr, name, 0.0) for name in lambdas]
        rows = sources[(trial.config.method, trial.config.seed, *weights)]
        factor = 1 + 0.1 * np.random.default_rng(number).random()
        times = {name: factor * rows[name] for name in TIMES}
        tables.append(
            _more_episodes(rows.assign(scheduler=trial.scheduler, **times, unit=rows["unit"] + trial.name), copies)
        )
        trained.append(_trained(folder, trial))
        if training is not None:
            curve = training[(training["method"] == trial.config.method) & (training["train_seed"] == 42)]
            slower = {"scheduler": trial.scheduler, "response_mean_s": factor * curve["response_mean_s"]}
            epochs.append(curve[[*TRAINING_COLUMNS]].assign(**slower))
    for home, dimension in itertools.product(homes, ("schedulers", "problems", "protocols")):
        dataset.append(folder, **{dimension: dataset.read(Location(str(home)), dimension)})
    kept = [name for name in episodes if name in EPISODE_COLUMNS or name.startswith(UTILISATION_PREFIX)]
    dataset.append(folder, schedulers=[training_row(trial.scheduler, trial.config) for trial in plan.trials])
    joined = pd.concat(epochs, ignore_index=True) if epochs else []
    dataset.append(folder, episodes=pd.concat(tables, ignore_index=True)[kept], training=joined, trainings=trained)


def _opened(folder: Path, sweep_file: Path, changes: Sequence[str] = ()) -> Plan:
    """Make the results folder of a sweep; returns its plan."""
    sweep = load_sweep(sweep_file, changes)
    plan = make_plan(sweep, str(sweep_file))
    content = sweep.model_dump(mode="json")
    results.open_folder(Location(str(folder)), sweep.name, content, "0" * 12, plan.to_json())
    return plan


def _trained(folder: Path, trial: Trial) -> dict[str, Any]:
    """The row of a finished training, whose policy has no weights."""
    for file in POLICY_FILES:
        write_json(folder / "policies" / trial.name / file, {})
    return {"name": trial.name, "scheduler": trial.scheduler, "epochs": trial.config.stop_epochs, "stopped": False}


def _more_episodes(rows: pd.DataFrame, copies: int) -> pd.DataFrame:
    """The episodes of some rows and copies of them, each with its own times that all methods share."""
    factors = 1 + 0.1 * np.random.default_rng(7).random(copies)
    step = int(rows["episode"].max()) + 1
    return pd.concat(
        [
            rows.assign(episode=rows["episode"] + k * step, **{name: factors[k] * rows[name] for name in TIMES})
            for k in range(copies)
        ]
    )


SWEEP = """
name: trials
methods: [scale]
seeds: [{seeds}]
algorithm: {{epochs: 3}}
grid:
  srr.lambda_decorrelation: {weights}
  srr.lambda_kl: {weights}
evaluation: {{scales: [16, 32, 48, 64], features: false}}
"""


def write_sweep(path: Path, trials: int) -> None:
    """The file of a sweep of a number of trials, a multiple of 100."""
    seeds = ", ".join(map(str, range(max(1, trials // 100))))
    content = SWEEP.format(seeds=seeds, weights=[0.001 * k for k in range(10)])
    write_atomic(path, lambda p: p.write_text(content))


def make_trials(folder: Path, trials: int) -> None:
    """A finished sweep with four evaluations of each trial, and the sweep file of ten times as many trials."""
    for name, count in (("sweep", trials), ("ten_times", 10 * trials)):
        write_sweep(folder / f"{name}.yaml", count)
    episodes = load(*REPRODUCTION).episodes
    rows = episodes[(episodes["method"] == "scale") & (episodes["scenario"] == "paper")].head(30)
    rows = rows[[name for name in rows if name in METRIC_COLUMNS]]
    for name in ("ten_times", "sweep"):
        home = folder / ("results" if name == "sweep" else name)
        plan = _opened(home, folder / f"{name}.yaml")
        trained = [_trained(home, trial) for trial in plan.trials]
        epochs = [(trial, 1 + k) for trial in plan.trials for k in range(trial.config.stop_epochs)]
        curves = [{"scheduler": trial.scheduler, "epoch": epoch} for trial, epoch in epochs]
        dataset.append(home, **plan.dimensions)
        described = [training_row(trial.scheduler, trial.config) for trial in plan.trials]
        dataset.append(home, schedulers=described, training=curves, trainings=trained)
    found = [
        rows.assign(**unit.columns, unit=unit.key, episode=range(len(rows)), observability="clairvoyant")
        for unit in plan.units
    ]
    dataset.append(home, episodes=pd.concat(found, ignore_index=True))


def time_commands(folder: Path) -> list[Measure]:
    """Wall and CPU seconds of whole commands over DIR/trials."""
    sweep = ["sweep", str(folder / "sweep.yaml"), "--results", str(folder / "results")]
    commands = {
        "validate": ["validate", str(folder / "ten_times.yaml")],
        "first": sweep,  # writes the report
        "again": sweep,
        "status": ["status", str(folder / "results")],
        "status of ten times as many": ["status", str(folder / "ten_times")],
    }
    found = []
    for part, arguments in commands.items():
        wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-m", "rllib_scale", *arguments], check=True, stdout=subprocess.PIPE)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if part == "again" and b"Nothing is left to do" not in done.stdout:
            raise SystemExit("trials, again: the sweep was not finished")
        taken = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }
        aim = AIMS_OF_COMMANDS.get(part)
        found.append(Measure(f"trials, {part}", "s", taken["cpu_s"], taken["wall_s"], aim, aim, True, (taken,)))
    return found


def time_in_bucket(folder: Path) -> list[Measure]:
    """Wall seconds of `status` and `report` of a results folder in a bucket, each request a while late."""
    found = []
    with bucket() as place:
        home = Location(place % folder.name)
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(lambda name: (home / name).write((folder / name).read_bytes()), names))
        for words, aim in ((["status", str(home)], 3.0), (["report", str(home), "--output", f"{folder}-page"], 60.0)):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "rllib_scale", *words], check=True, stdout=subprocess.PIPE)
            taken = time.perf_counter() - start
            found.append(Measure(f"{folder.name} on S3, {words[0]}", "s", taken, bar=aim, aim=aim, at_most=True))
    return found


Work = Callable[[], object]


def _report(folder: Path) -> Work:
    from rllib_scale_analysis.report.write import write_report

    return lambda: write_report(folder, console=Console(quiet=True))


def _status(folder: Path) -> Work:
    from rllib_scale.cli.results import status

    return lambda: status.main([str(folder), "--json"], standalone_mode=False)


def _view(name: str, folder: Path) -> Work:
    """A view of the dashboard, of a folder that has been read: as after the first paint."""
    import logging

    logging.disable(logging.WARNING)  # of Streamlit without its server
    from rllib_scale_analysis.dashboard import episode_view, selection, views
    from rllib_scale_analysis.dashboard.selection import Filters
    from rllib_scale_analysis.load import Reader

    found = Reader(Location(str(folder))).read()
    # Policies are copies without weights: the episode is one of a rule.
    methods = ("fastest-idle",) if name == "episode" else ()
    filters = Filters(selection.options(found.episodes, found.training).settings[0], methods)
    view = getattr(episode_view if name == "episode" else views, name)
    return partial(view, found, filters)


PARTS: dict[str, Callable[[Path], Work]] = {"report": _report, "status": _status}
PARTS |= {name: partial(_view, name) for name in VIEWS}
ALL = (*PARTS, "commands", "start", "memory", "bucket")


def measure(folder: Path, part: str) -> dict[str, float]:
    """Wall and CPU seconds of a part without its imports, and peak memory of the process [GB]."""
    work = PARTS[part](folder)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    taken = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return taken | {"peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


def run(folder: Path, rows: int, variants: int, trials: int, parts: tuple[str, ...] = ALL) -> list[Measure]:
    """All measures, each in its own process, and the size of the report."""
    found = []
    if "commands" in parts:
        if not (folder / "trials").exists():
            make_trials(folder / "trials", trials)
        found += time_commands(folder / "trials")
    many = folder / "ten_times.yaml"
    if {"start", "memory"} & set(parts):
        write_sweep(many, 10 * trials)
    if "start" in parts:
        found += measure_start(many, 10 * trials)
    if "memory" in parts:
        found += measure_memory(many, 10 * trials)
    for name, make, size in (("rows", make_rows, rows), ("variants", make_variants, variants)):
        if set(parts) & {*PARTS, "bucket"} and not (folder / name).exists():
            make(folder / name, size)
        for part in (part for part in parts if part in PARTS):
            command = [sys.executable, "-m", "benchmarks.scale", str(folder / name), "--measure", part]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            taken = json.loads(done.stdout.splitlines()[-1])
            title = f"{name}, {part}"
            aim = AIMS.get((name, part))
            found.append(Measure(title, "s", taken["cpu_s"], taken["wall_s"], aim, aim, True, (taken,)))
            found.append(Measure(f"{title}: peak memory", "GB", taken["peak_gb"], at_most=True))
        if name == "rows" and "bucket" in parts:
            found += time_in_bucket(folder / name)
        page = folder / name / "report" / "report.html"
        if page.is_file():
            found.append(Measure(f"{name}, report: size of the page", "MB", page.stat().st_size / 1e6, at_most=True))
    return found


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--rows", default=1_020_000, show_default=True)
@click.option("--variants", default=996, show_default=True)
@click.option("--trials", default=1000, show_default=True, help="A multiple of 100.")
@click.option("--part", "parts", multiple=True, type=click.Choice(ALL), help="All by default.")
@click.option("--measure", "part", type=click.Choice(list(PARTS)), hidden=True)
def main(folder: Path, rows: int, variants: int, trials: int, parts: tuple[str, ...], part: str | None) -> None:
    """Make results folders in FOLDER and time what shows them."""
    if part is not None:
        click.echo("\n" + json.dumps(measure(folder, part)))
        return
    console = Console()
    console.print(describe(machine()), markup=False)
    console.print(table("scale", run(folder.absolute(), rows, variants, trials, parts or ALL), 1))


if __name__ == "__main__":
    main()
