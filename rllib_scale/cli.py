"""The command line. Thin: every command reads its input, calls one function and prints what came back."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from rllib_scale import __version__
from rllib_scale.cluster_cli import cluster, fetch, submit
from rllib_scale.errors import UserError, choice_error
from rllib_scale.terminal import console, errors, say

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.experiments.evaluate import Player
    from rllib_scale.experiments.plan import SweepConfig


class Commands(click.Group):
    """Turns bad input into one line and exit code 2, Ctrl-C into one line and 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        signal.signal(signal.SIGINT, _interrupt_once)
        try:
            return super().invoke(ctx)
        except (UserError, click.UsageError) as error:
            message = error.format_message() if isinstance(error, click.UsageError) else str(error)
            errors.print(f"Error: {message}", style="red", markup=False)
            ctx.exit(2)
        except KeyboardInterrupt:
            errors.print("Interrupted. What is finished is kept; the same command goes on from it.", markup=False)
            ctx.exit(130)


def _interrupt_once(number: int, frame: object) -> None:
    """Ctrl-C: what runs comes to an orderly end, which a second Ctrl-C must not break off."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="rllib-scale")
def main() -> None:
    """Train, sweep and evaluate schedulers of agentic workflows (SCALE, arXiv:2606.06820) on Ray."""
    # Before torch and BLAS start: one compute thread a process, parallelism comes from processes.
    from rllib_scale.experiments.session import ONE_THREAD

    os.environ.update(ONE_THREAD)


# ---------------------------------------------------------------------- sweeps and trainings

_SEED = click.IntRange(0, 2**63 - 1)
_set = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a config key; repeatable.")
_address = click.option("--address", metavar="ADDR", help="Ray cluster to run on (default: a local Ray of its own).")
_results = click.option(
    "--results", metavar="PLACE", help="Results folder, or an s3:// or gs:// URI (default: results/NAME)."
)
_trust = click.option(
    "--trust", is_flag=True, help="Go on from checkpoints, which are pickles, in a results folder made elsewhere."
)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_address
@_results
@_trust
@_set
@click.option(
    "--reuse",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Results folder whose finished trainings of the same cells are taken over; repeatable.",
)
def sweep(
    file: Path,
    address: str | None,
    results: str | None,
    trust: bool,
    overrides: tuple[str, ...],
    reuse: tuple[Path, ...],
) -> None:
    """Run the sweep of FILE: train and evaluate every cell, write the results and the report.

    Run again, it skips what is finished and goes on with what is not.
    """
    config = _read_sweep(file, overrides)
    _run(config, results, str(file), address, trust, reuse)


@main.command()
@click.option(
    "--budget",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="quick: one seed, 60 epochs, to see it work; paper: all seeds, 1000 epochs.",
)
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: results/reproduction-BUDGET)."
)
@_address
@_set
@_trust
def reproduce(budget: str, results: Path | None, address: str | None, overrides: tuple[str, ...], trust: bool) -> None:
    """Run what Tables 3, 4, 5 and Figures 3 to 6 of the paper need, and write one report.

    Run again, it goes on where it was.
    """
    from rllib_scale.experiments.reproduce import run_reproduction

    folder = results or Path("results") / f"reproduction-{budget}"
    _finish(folder, run_reproduction(folder, budget, overrides, address, say, trust))


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_set
@click.option("--full", is_flag=True, help="Print each resolved training config as JSON.")
def validate(file: Path, overrides: tuple[str, ...], full: bool) -> None:
    """Show what the sweep of FILE expands to, without running it."""
    from rllib_scale.experiments import plan

    config = _read_sweep(file, overrides)
    cells = plan.expand(config, str(file))
    table = Table("training", "method", "seed", "lambda_1", "lambda_2", "epochs", "servers", "other settings")
    for cell in cells:
        trial = cell.trial
        lambdas = (f"{trial.srr.lambda_decorrelation:g}", f"{trial.srr.lambda_kl:g}")
        numbers = (str(trial.stop_epochs), str(trial.env.cluster.num_servers))
        table.add_row(trial.name, trial.method, str(trial.seed), *lambdas, *numbers, cell.label)
    console.print(table)
    if full:
        for cell in cells:
            console.print_json(cell.trial.model_dump_json())
    _print_plan(config, str(file))


@main.command()
@click.option("--method", default="scale", show_default=True, help="See `rllib-scale methods`.")
@click.option("--seed", default=42, show_default=True)
@click.option("--epochs", default=1000, show_default=True, help="Also the length of the learning-rate cosine.")
@click.option("--scenario", default="paper", show_default=True, help="See `rllib-scale scenarios`.")
@click.option("--scales", default="16,32,48", show_default=True, help="Servers to evaluate at, by commas.")
@click.option("--env-runners", default=0, show_default=True, help="Remote samplers; 0 samples in the learner.")
@_address
@_results
@_trust
@_set
def train(
    method: str,
    seed: int,
    epochs: int,
    scenario: str,
    scales: str,
    env_runners: int,
    address: str | None,
    results: str | None,
    trust: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train one policy and evaluate it: a sweep of a single cell."""
    from rllib_scale.configio import build_model, parse_override, set_path
    from rllib_scale.experiments.plan import SweepConfig

    data: dict[str, Any] = {
        "name": f"train-{method}-s{seed}-e{epochs}",
        "scenario": scenario,
        "methods": [method],
        "seeds": [seed],
        "training": {"epochs": epochs},
        "resources": {"env_runners": env_runners},
        "evaluation": {"scales": _numbers("--scales", scales)},
    }
    for override in overrides:
        set_path(data, *parse_override(override))
    config = build_model(SweepConfig, data, "train")
    _run(config, results, "train", address, trust)


def _read_sweep(file: Path, overrides: tuple[str, ...]) -> SweepConfig:
    from rllib_scale.configio import load_model
    from rllib_scale.experiments.plan import SweepConfig

    return load_model(SweepConfig, file, overrides)


def _print_plan(config: SweepConfig, source: str) -> None:
    from rllib_scale.experiments import plan

    cells = plan.expand(config, source)
    units = plan.evaluation_units(config, cells)
    each = plan.cpus_per_trial(config.resources)
    epochs = sorted({cell.trial.stop_epochs for cell in cells})
    noun = "training" if len(cells) == 1 else "trainings"
    shown = f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
    say(
        f"{config.name}: {len(cells)} {noun} of {shown} epochs (the paper trains 1000), "
        f"{plan.training_steps(cells):,} env steps in all; each needs {each:g} CPUs"
    )
    say(f"{len(units)} evaluations of {config.evaluation.episodes} episodes at {config.evaluation.scales} servers")
    skipped = sorted({cell.trial.method for cell in cells if not cell.trial.spec.any_scale})
    if skipped:
        say(f"{', '.join(skipped)}: evaluated only at the number of servers trained on, to which the network is fixed")


def _run(
    config: SweepConfig, place: str | None, source: str, address: str | None, trust: bool, reuse: tuple[Path, ...] = ()
) -> None:
    from rllib_scale.experiments.storage import results_folder
    from rllib_scale.experiments.sweep import run_sweep

    _print_plan(config, source)
    with results_folder(place or f"results/{config.name}", say) as (folder, storage):
        _finish(folder, run_sweep(config, folder, source, address, say, reuse, storage, trust))


def _finish(folder: Path, failures: list[str]) -> None:
    """Write the report; the exit code is 1 where a training failed."""
    _report(folder)
    for line in failures:
        errors.print(f"Failed: {line}", style="red", markup=False)
    if failures:
        sys.exit(1)


for command in (cluster, submit, fetch):
    main.add_command(command)


# ---------------------------------------------------------------------- evaluation


@main.command()
@click.argument("policy")
@click.option("--scales", default="16,32,48,128", show_default=True, help="Servers, by commas.")
@click.option("--episodes", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=_SEED, default=1000, show_default=True, help="(seed, episode) fixes a workload.")
@click.option("--scenario", default="paper", show_default=True, help="See `rllib-scale scenarios`.")
@click.option("--decision", type=click.Choice(["argmax", "sample"]), default="argmax", show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one row per episode, .csv or .parquet.")
def evaluate(
    policy: str,
    scales: str,
    episodes: int,
    seed: int,
    scenario: str,
    decision: str,
    mask: str | None,
    output: Path | None,
) -> None:
    """Evaluate POLICY, a folder with an exported policy or a heuristic's name, at any number of servers."""
    import pandas as pd

    from rllib_scale.experiments.evaluate import evaluate as run
    from rllib_scale.files import write_atomic

    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise UserError(f"--output {output}: must end in .csv or .parquet")
    frames = []
    for servers in _numbers("--scales", scales):
        env = _problem(scenario, servers, mask)
        scheduler = _scheduler(policy, env, decision)
        rows = pd.DataFrame(run(scheduler, env, seed, episodes))
        frames.append(
            rows.assign(method=scheduler.name, scenario=scenario, test_servers=servers, mask=env.episode.mask)
        )
    frame = pd.concat(frames, ignore_index=True).assign(decision=decision, eval_seed=seed)
    title = f"{frame['method'][0]}, scenario {scenario}, mask {frame['mask'][0]}, {decision}"
    table = Table(title=f"{title}: mean ± sd over {episodes} episodes", title_justify="left")
    for column in ("servers", "completed", "unfinished", "response (s)", "censored (s)", "return", "invalid"):
        table.add_column(column, justify="right")
    for at_scale, rows in frame.groupby("test_servers"):
        invalid = rows.filter(like="invalid_").to_numpy().sum() / max(1, rows["decisions"].sum())
        means = (
            f"{rows[k].mean():.{d}f} ± {rows[k].std(ddof=1) if len(rows) > 1 else 0:.{d}f}"
            for k, d in (("completed", 2), ("unfinished", 1), ("response_mean_s", 2), ("response_censored_s", 2))
        )
        table.add_row(str(at_scale), *means, f"{rows['episode_return'].mean():.2f}", f"{invalid:.0%}")
    console.print(table)
    if output is not None:
        write = frame.to_csv if output.suffix == ".csv" else frame.to_parquet
        write_atomic(output, lambda path: write(path, index=False))
        say(f"wrote {output}")


@main.command()
@click.option("--scheduler", default="fastest-idle", show_default=True, help="A heuristic's name or a policy folder.")
@click.option("--scenario", default="paper", show_default=True)
@click.option("--servers", default=16, show_default=True)
@click.option("--workload", type=click.Path(path_type=Path), help="Workload to play (JSON).")
@click.option("--horizon", type=float, help="End of the episode in s (default: the scenario's).")
@click.option("--seed", type=_SEED, default=1000, show_default=True, help="Of the workload, where none is given.")
@click.option("--episode", type=_SEED, default=0, show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--schedule", type=click.Path(path_type=Path), help="Write the schedule (CSV).")
@click.option("--gantt", type=click.Path(path_type=Path), help="Draw the schedule (PNG).")
@click.option("--save-workload", type=click.Path(path_type=Path), help="Write the workload that was played (JSON).")
def simulate(
    scheduler: str,
    scenario: str,
    servers: int,
    workload: Path | None,
    horizon: float | None,
    seed: int,
    episode: int,
    mask: str | None,
    schedule: Path | None,
    gantt: Path | None,
    save_workload: Path | None,
) -> None:
    """Play one episode and write its whole schedule."""
    import pandas as pd

    from rllib_scale.envs.gantt import draw_gantt
    from rllib_scale.experiments.evaluate import play
    from rllib_scale.files import write_atomic
    from rllib_scale.simulator.workflow import Workload
    from rllib_scale.simulator.workload import generate

    env = _problem(scenario, servers, mask, horizon)
    given = Workload.load(workload) if workload else None
    if given is not None:
        given.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), str(workload))
    chosen = _scheduler(scheduler, env, "argmax")
    engine = play(chosen, env, seed, [episode], workload=given)
    title = f"{chosen.name} on {workload.name if workload else f'{scenario}, seed {seed}, episode {episode}'}"
    table = Table("metric", "value", title=title, title_justify="left")
    for name, value in engine.metrics().items():
        table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    rows = engine.schedule()
    if schedule is not None:
        write_atomic(schedule, lambda path: pd.DataFrame(rows).to_csv(path, index=False))
        say(f"wrote {schedule}: {len(rows)} started tasks")
    if gantt is not None:
        figure = draw_gantt(rows, env.cluster, float(engine.clock[0]), title)
        write_atomic(gantt, lambda path: figure.savefig(path, format="png"))
        say(f"wrote {gantt}")
    if save_workload is not None:
        (given or generate(env, seed, episode)).save(save_workload)
        say(f"wrote {save_workload}")


@main.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
def report(results_dir: Path) -> None:
    """Print the tables of a results folder and write a page, the tables and the figures to RESULTS_DIR/report."""
    _report(results_dir)


@main.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Of loopback (default: 8501, or the next free one).")
def dashboard(results_dir: Path, port: int | None) -> None:
    """Show RESULTS_DIR, of a running or finished sweep, as a live page on loopback."""
    from analysis.dashboard.serve import serve

    serve(results_dir, port)


def _report(folder: Path) -> None:
    from analysis.load import load
    from analysis.report import write_report
    from analysis.terminal import print_report
    from rllib_scale.experiments.replay import Replay

    print_report(load(folder), console)
    page = write_report(folder, gantt=Replay(folder))
    say(f"wrote {page} and {page.with_suffix('.html').name}")


# ---------------------------------------------------------------------- what there is


@main.command()
def methods() -> None:
    """List the learned methods."""
    from rllib_scale.config import METHODS

    _print_names({name: spec.description for name, spec in METHODS.items()})


@main.command()
def schedulers() -> None:
    """List the heuristics."""
    from rllib_scale.schedulers.heuristics import SCHEDULERS

    _print_names({name: rule.description for name, rule in SCHEDULERS.items()})


@main.command()
def scenarios() -> None:
    """List the named problems."""
    from rllib_scale.config import SCENARIOS

    _print_names({name: text for name, (_, text) in SCENARIOS.items()})


@main.command()
@_address
def doctor(address: str | None) -> None:
    """Check the installation: versions, cores, memory, compiled code, Ray."""
    from rllib_scale.experiments.doctor import checks

    table = Table("check", "result", "state")
    healthy = True
    for name, result, good in checks(address):
        healthy &= good
        table.add_row(name, result, "ok" if good else "[red]FAILED[/red]")
    console.print(table)
    sys.exit(0 if healthy else 1)


@main.command()
@click.argument("what", type=click.Choice(["sim", "net", "train", "scaling", "decide", "all"]), default="all")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Medians are over these.")
@click.option("--output", type=click.Path(path_type=Path), help="Write every raw number (JSON).")
def bench(what: str, rounds: int, output: Path | None) -> None:
    """Measure speed side by side with stock RLlib, a plain PPO loop and textbook forms. Needs a clone."""
    clone = Path(__file__).resolve().parents[1]
    if not (clone / "benchmarks" / "run.py").is_file():
        raise UserError("bench needs a clone of the repository: benchmarks/ is not installed with the package")
    sys.path.insert(0, str(clone))
    from benchmarks import run as benchmarks
    from rllib_scale.files import write_json

    names = benchmarks.NAMES if what == "all" else (what,)
    result = benchmarks.run(names, rounds, console)
    if output is not None:
        write_json(output, result)
        say(f"wrote {output}")


# ---------------------------------------------------------------------- reading arguments


def _print_names(names: dict[str, str]) -> None:
    table = Table("name", "what it is")
    for name, text in names.items():
        table.add_row(name, text)
    console.print(table)


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text!r}: must be whole numbers separated by commas") from None


def _problem(name: str, servers: int, mask: str | None, horizon: float | None = None) -> EnvConfig:
    from rllib_scale.config import SCENARIOS, EnvConfig
    from rllib_scale.configio import build_model

    if name not in SCENARIOS:
        raise choice_error("scenario", name, SCENARIOS)
    data = SCENARIOS[name][0].model_dump(mode="json")
    data["cluster"]["servers"] = servers
    if mask is not None:
        data["episode"]["mask"] = mask
    if horizon is not None:
        data["episode"]["horizon_s"] = horizon
    return build_model(EnvConfig, data, name)


def _scheduler(name: str, env: EnvConfig, decision: str) -> Player:
    from rllib_scale.schedulers.heuristics import SCHEDULERS, make_scheduler

    if name in SCHEDULERS or not Path(name).exists():
        if name not in SCHEDULERS:
            raise UserError(f"{choice_error('scheduler', name, SCHEDULERS)}; and no policy folder of that name")
        return make_scheduler(name, env.observation, env.episode.mask, decision)  # type: ignore[arg-type]
    from rllib_scale.policy import load_policy

    return load_policy(Path(name), mask=env.episode.mask, decision=decision)  # type: ignore[arg-type]
