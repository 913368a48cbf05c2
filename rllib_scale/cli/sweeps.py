"""Commands that train: sweep, reproduce, validate, train."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.options import address_option, code_option, results_option, set_option, trust_option
from rllib_scale.cli.problems import say_read
from rllib_scale.cli.results import say_places, write_report
from rllib_scale.cli.terminal import errors, json_option, say, show, wants_json
from rllib_scale.errors import UserError, counted
from rllib_scale.files import check_working_folder
from rllib_scale.presets import sweep_file

if TYPE_CHECKING:
    from rllib_scale.config.plan import Plan
    from rllib_scale.results.storage import Location

SHOWN_TRIALS = 500
"""Trainings in the table of `validate`."""
sweep_argument = click.argument("file", callback=lambda ctx, argument, value: sweep_file(value))


@click.command()
@sweep_argument
@address_option
@results_option
@trust_option
@set_option
@click.option(
    "--reuse",
    multiple=True,
    metavar="PLACE",
    help="Results folder, or its URI, whose finished trainings of the same trials are reused; repeatable.",
)
def sweep(
    file: Path,
    address: str | None,
    results: str | None,
    trust: bool,
    overrides: tuple[str, ...],
    reuse: tuple[str, ...],
) -> None:
    """Run the sweep of FILE, a YAML file or a preset's name: train and evaluate every trial, write results and report.

    Run again, it skips finished parts and resumes the rest.
    """
    _run(_plan(file, overrides), str(file), results, address, trust, reuse)


@click.command()
@click.option(
    "--budget",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="quick: one seed, 60 epochs; paper: all seeds, 1000 epochs.",
)
@click.option("--results", metavar="PLACE", help="Folder or URI of the results (default: results/reproduction-BUDGET).")
@address_option
@set_option
@trust_option
def reproduce(budget: str, results: str | None, address: str | None, overrides: tuple[str, ...], trust: bool) -> None:
    """Run the sweeps behind Tables 3, 4, 5 and Figures 3 to 6 of the paper, and write one report.

    Run again, it resumes.
    """
    from rllib_scale.results.storage import Location
    from rllib_scale.sweeps.reproduce import PARTS, run_reproduction
    from rllib_scale.sweeps.run import interrupt_on_sigterm

    interrupt_on_sigterm()
    check_working_folder()
    place = Location(results or f"results/reproduction-{budget}")
    failures = run_reproduction(place, budget, overrides, address, say, trust)
    _finish([place / part for part in PARTS], failures)


@click.command()
@sweep_argument
@set_option
@code_option
@json_option
def validate(file: Path, overrides: tuple[str, ...], trust: bool) -> None:
    """Show the trials and evaluations of the sweep of FILE, a YAML file or a preset's name, without running it."""
    from rllib_scale.config.identity import in_words
    from rllib_scale.config.plan import telling

    plan = _plan(file, overrides)
    configs = [trial.config for trial in plan.trials]
    rows: list[dict[str, Any]] = [
        {"name": trial.name, "method": config.method, "seed": config.seed, "epochs": config.stop_epochs}
        for trial, config in zip(plan.trials, configs, strict=True)
    ]
    if wants_json():
        show([row | {"trial": own.model_dump(mode="json")} for row, own in zip(rows, configs, strict=True)], {})
    elif rows:
        for row, differing in zip(rows, telling(configs), strict=True):
            row["settings"] = in_words(differing)
        more = len(rows) - SHOWN_TRIALS
        columns = {"trial": "name", "method": "method", "seed": "seed", "epochs": "epochs", "what differs": "settings"}
        show(rows[:SHOWN_TRIALS], columns, caption=f"and {more:,} more; --json prints all" if more > 0 else "")
    _check_and_print(plan, str(file), trust)


@click.command()
@click.option("--method", default="scale", show_default=True, help="See `rllib-scale methods`.")
@click.option("--seed", default=42, show_default=True)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    help="Also the length of the learning-rate schedule (default: 1000; context-price 150, decima and deeprm 200).",
)
@click.option("--scenario", default="paper", show_default=True, help="See `rllib-scale scenarios`; or FILE.yaml.")
@address_option
@results_option
@trust_option
@set_option
def train(
    method: str,
    seed: int,
    epochs: int | None,
    scenario: str,
    address: str | None,
    results: str | None,
    trust: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train one policy and evaluate it: a sweep of a single trial."""
    from rllib_scale.config import METHODS
    from rllib_scale.config.algorithms import ALGORITHM_MODELS
    from rllib_scale.loading import overridden, sweep_from
    from rllib_scale.sweeps.planning import make_plan

    algorithm = METHODS[method if method in METHODS else "scale"].algorithm
    epochs = epochs or ALGORITHM_MODELS[algorithm["name"]].model_fields["epochs"].default
    data: dict[str, Any] = {
        "name": f"train-{method}-{scenario.replace(':', '-')}-s{seed}-e{epochs}",
        "scenario": scenario,
        "methods": [method],
        "seeds": [seed],
        "algorithm": {"epochs": epochs},
    }
    plan = make_plan(sweep_from(overridden(data, overrides), "train"), "train")
    _run(plan, "train", results, address, trust)


def _plan(file: Path, overrides: tuple[str, ...]) -> Plan:
    from rllib_scale.loading import load_sweep
    from rllib_scale.sweeps.planning import make_plan

    return make_plan(load_sweep(file, overrides), str(file))


def _check_and_print(plan: Plan, source: str, trust: bool) -> None:
    """Refuse a plan that cannot be carried out, naming its source, or print its size."""
    from rllib_scale.config.inert import inert_settings
    from rllib_scale.config.plan import needs, training_steps
    from rllib_scale.config.search import few_points
    from rllib_scale.sweeps.checks import check_plan
    from rllib_scale.sweeps.cpu_time import sentence

    envs = (*(trial.config.env for trial in plan.trials), *(unit.env for unit in plan.units))
    try:
        check_plan(plan, trust)
        for env in {env.service.trace: env for env in envs}.values():
            say_read(env)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    sweep, trials = plan.sweep, plan.trials
    epochs, steps = sorted({trial.config.stop_epochs for trial in trials}), training_steps(trials)
    if epochs:
        shown = f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        say(
            f"{sweep.name}: {counted(len(trials), 'training')} of {shown} epochs (the paper trains 1000), "
            + (f"{steps:,} env steps in all; " if steps else "")
            + f"each needs {needs(trial.config.resources for trial in trials)}"
        )
    else:
        say(f"{sweep.name}: rules alone, nothing to train")
    *most, last = map(str, sweep.evaluation.scales)
    servers = f"{', '.join(most)} and {last}" if most else last
    if all(unit.problem.of_family for unit in plan.units):
        servers = "their own numbers of"
    episodes = counted(sweep.evaluation.episodes, "episode")
    say(f"{counted(len(plan.units), 'evaluation')} of {episodes} at {servers} servers")
    skipped = sorted({trial.config.method for trial in trials if not trial.config.any_scale})
    if skipped:
        say(f"{', '.join(skipped)}: evaluated only at the number of servers trained on, as its input has a fixed size")
    say(sentence(plan))
    warnings = inert_settings(trial.config for trial in trials)
    for warning in (*warnings, *few_points(sweep.search, len(trials), sweep.most_trainings)):
        say(f"Warning: {warning}")


def _run(
    plan: Plan, source: str, place: str | None, address: str | None, trust: bool, reuse: tuple[str, ...] = ()
) -> None:
    from rllib_scale.results.storage import Location
    from rllib_scale.sweeps.run import interrupt_on_sigterm, run_sweep

    interrupt_on_sigterm()
    check_working_folder()
    _check_and_print(plan, source, trust)
    home = Location(place or f"results/{plan.sweep.name}")
    failures = run_sweep(plan, home, address, say, [Location(other) for other in reuse], trust)
    _finish([home], failures)


def _finish(homes: Sequence[Location], failures: list[str]) -> None:
    """Say what failed, write a report that is missing or old, and exit with code 1 if anything failed."""
    from rllib_scale.results.dataset import TABLES, parts

    page = (homes[0] / "report").files().get("report.html")
    written = [info.mtime_ns for home in homes for table in TABLES for info in parts(home, table).values()]
    try:
        if page is not None and written and page.mtime_ns >= max(written):
            say_places(homes[0])
        else:
            write_report(homes)
    finally:  # even if the report fails
        for line in failures:
            errors.print(f"Failed: {line}", style="red", markup=False)
    if failures:
        sys.exit(1)
