"""The reproduction of the paper: presets that run one after the other and reuse each other's trainings."""

from __future__ import annotations

from collections.abc import Callable

from rllib_scale.clusters.session import ray_session
from rllib_scale.config.methods import has_setting
from rllib_scale.config.plan import Plan
from rllib_scale.loading import load_sweep
from rllib_scale.presets import sweep_file
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checks import check_plan
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.run import run_sweep

PARTS = ("table4", "table3", "table3_off_policy", "scenarios", "scale_1024")
"""In this order: a later part reuses the trainings of earlier ones."""
BUDGETS: dict[str, tuple[str, ...]] = {
    "paper": (),
    "quick": ("algorithm.epochs=60", "seeds=[42]", "evaluation.episodes=10"),
}
"""Overrides of every part."""


def run_reproduction(
    place: Location,
    budget: str,
    overrides: tuple[str, ...],
    address: str | None,
    say: Callable[[str], None],
    trust: bool = False,
) -> list[str]:
    """Run or resume all parts; returns one line for each training that failed.

    Args:
        place: receives the results of each part, in a folder of its name.
        budget: a key of BUDGETS.
        overrides: for every part with a method that uses them, applied after those of the budget.
        address: see `run_sweep`.
        say: see `run_sweep`.
        trust: see `run_sweep`.

    Raises:
        UserError: see `run_sweep`.
    """
    plans = plans_of_parts(BUDGETS[budget], overrides)
    for plan in plans.values():
        check_plan(plan, trust)
    failures: list[str] = []
    earlier: list[Location] = []
    with ray_session(address, say=say):
        for position, (name, plan) in enumerate(plans.items()):
            say(f"part {position + 1} of {len(PARTS)}: {name}")
            home = place / name
            failures += run_sweep(plan, home, address, say, earlier, trust=trust)
            earlier.append(home)
    return failures


def plans_of_parts(budget: tuple[str, ...], overrides: tuple[str, ...]) -> dict[str, Plan]:
    """The plans of all parts; arguments as of `run_reproduction`.

    A setting that only some parts use is left out of the others.

    Raises:
        UserError: no part uses a setting, or one refuses it.
    """
    files = {name: sweep_file(name) for name in PARTS}
    methods = {name: [method for method, _ in load_sweep(file, budget).entries] for name, file in files.items()}

    def has(part: str, override: str) -> bool:
        return all(has_setting(method, override.partition("=")[0]) for method in methods[part])

    nowhere = {text for text in overrides if not any(has(part, text) for part in PARTS)}
    plans = {}
    for name, file in files.items():
        # The first part refuses settings that no part has.
        own = tuple(text for text in overrides if text in nowhere or has(name, text))
        plans[name] = make_plan(load_sweep(file, budget + own), file.name)
    return plans
