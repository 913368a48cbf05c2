"""The expansion of a sweep to its plan. Free of ray and torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rllib_scale.config import EnvConfig, MaskMode, TrialConfig, TrialResources, digest, family, identity
from rllib_scale.config.plan import EvaluationUnit, Overrides, Plan, Problem, Trial, shown
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.search import points
from rllib_scale.config.sections import UNUSED, used_settings
from rllib_scale.config.sweep import TRAIN_SCENARIO, TRIAL_SECTIONS, SweepConfig
from rllib_scale.config.used_settings import is_set
from rllib_scale.config.yaml_files import build_model, set_path
from rllib_scale.errors import UserError
from rllib_scale.workloads.family import fixed_problems, fixed_seed


def make_plan(sweep: SweepConfig, source: str) -> Plan:
    """Expand a sweep.

    Args:
        sweep: the sweep.
        source: origin of the sweep, for messages.

    Raises:
        UserError: a value is not valid at its path, a scenario cannot be scaled to a number of servers, or a policy
            that reserves servers would be evaluated in the paper's mode.
    """
    trials = _trials(sweep, source)
    # Without methods, the grid still varies the problems that rules play.
    varied = trials if sweep.methods else _trials(sweep.model_copy(update={"methods": ("crossattn",)}), sweep.name)
    problems = _Problems(sweep)
    units = {unit.key: unit for unit in _rule_units(sweep, varied, problems)}
    for unit in _policy_units(sweep, trials, problems):
        units.setdefault(unit.key, unit)
    return Plan(sweep, tuple(trials), tuple(units.values()))


def _trials(sweep: SweepConfig, source: str) -> list[Trial]:
    sections: dict[str, Any] = {name: getattr(sweep, name) for name in TRIAL_SECTIONS}
    sections["resources"] = TrialResources(**sweep.resources.model_dump(include=set(TrialResources.model_fields)))
    plain = {name: section.model_dump(mode="json") for name, section in sections.items()}
    if sweep.search is not None and sweep.search.scheduler == "pbt":
        # The result of a member depends on the whole population, so its hash is part of the training's identity.
        content = {name: identity(getattr(sweep, name)) for name in TRIAL_SECTIONS}
        sections["population"] = digest(content | sweep.model_dump(mode="json", include={"methods", "seeds", "search"}))
    trials: dict[str, Trial] = {}
    for method, values, point, seed in itertools.product(
        sweep.methods, itertools.product(*sweep.grid.values()), points(sweep.search), sweep.seeds
    ):
        overrides = _used(method, plain, (*zip(sweep.grid, values, strict=True), *point.items()))
        varied = {path.split(".")[0] for path, _ in overrides}
        # Sections that do not vary are shared by all trials and validated once.
        changed = {name: json.loads(json.dumps(plain[name])) for name in varied}
        for path, value in overrides:
            set_path(changed, path, value)
        data = sections | changed | {"method": method, "seed": seed}
        trial = Trial(build_model(TrialConfig, data, f"{source}: grid"), overrides)
        trials.setdefault(trial.identity["trial_id"], trial)
    return list(trials.values())


def _used(method: str, base: Mapping[str, Any], overrides: Overrides) -> Overrides:
    """The settings of a grid and a search that a method uses."""
    varied = {path: (value,) for path, value in overrides}
    expert, encoder = (any(is_set(path, varied, base)) for path in ("imitation.expert", "network.encoder"))
    used = used_settings(method, expert, encoder)
    parts = ((path, used.part(path, value)) for path, value in overrides)
    return tuple((path, part) for path, part in parts if part is not UNUSED)


class _Problems:
    """The problems of a sweep's evaluations, each made once for all schedulers."""

    def __init__(self, sweep: SweepConfig) -> None:
        self.sweep = sweep
        self.own_problems = TRAIN_SCENARIO in sweep.evaluated_scenarios
        self._known: dict[tuple[str, int], list[Problem]] = {}

    def of(self, trial: Trial) -> Iterator[Problem]:
        """The problems of a trial and of the rules that are compared with it."""
        for label in self.sweep.evaluated_scenarios:
            own = trial.config.env if label == TRAIN_SCENARIO else None
            if (label, id(own)) not in self._known:
                of_family = label in family.SCENARIOS
                found = self._of_family(label) if of_family else self._scaled(label, own or self.sweep.problem(label))
                self._known[label, id(own)] = list(found)
            yield from self._known[label, id(own)]

    def _of_family(self, label: str) -> Iterator[Problem]:
        evaluation, (kind, revealed) = self.sweep.evaluation, family.SCENARIOS[label]
        for number, env in enumerate(fixed_problems(kind, revealed)[: evaluation.family_problems]):
            for mask in self._masks(env):
                yield Problem(label, env.with_mask(mask), fixed_seed(kind, number, evaluation.seed))

    def _scaled(self, label: str, env: EnvConfig) -> Iterator[Problem]:
        evaluation = self.sweep.evaluation
        for servers, mask in itertools.product(evaluation.scales, self._masks(env)):
            try:
                at_scale = env.at_scale(servers)
            except ValueError as error:
                raise UserError(f"evaluation.scales {servers}: scenario {label}: {error}") from None
            # A trial's problem draws from training sessions, an evaluation from test sessions.
            yield Problem(label, at_scale.with_mask(mask).with_part("test"))

    def _masks(self, env: EnvConfig) -> tuple[MaskMode, ...]:
        return self.sweep.evaluation.masks or (env.episode.mask,)


def _rule_units(sweep: SweepConfig, trials: Iterable[Trial], problems: _Problems) -> Iterator[EvaluationUnit]:
    """Evaluations of rules and given policies."""
    distinct: dict[tuple[int, str], tuple[Trial, list[str]]] = {}
    for trial in trials:
        settings = [f"{path}={shown(value)}" for path, value in trial.overrides if path.startswith("env.")]
        key = (id(trial.config.env), "; ".join(settings)) if problems.own_problems else (0, "")
        distinct.setdefault(key, (trial, settings))
    for scheduler, (trial, settings) in itertools.product(sweep.evaluation.heuristics, distinct.values()):
        for problem in problems.of(trial):
            own = settings if problem.scenario == TRAIN_SCENARIO else []
            label = parse_scheduler(scheduler).label
            columns = {"trial_id": "@".join([label, *own]), "method": label, "kind": "heuristic"}
            columns["overrides"] = "; ".join(own)
            evaluation = sweep.evaluation
            seed = problem.seed_in(evaluation)
            yield EvaluationUnit(scheduler, columns, problem, "argmax", seed, evaluation.episodes)


def _policy_units(sweep: SweepConfig, trials: Iterable[Trial], problems: _Problems) -> Iterator[EvaluationUnit]:
    """Evaluations of the policies that the sweep trains."""
    evaluation = sweep.evaluation
    for trial in trials:
        spec, own = trial.config.spec, trial.config.env
        decisions = evaluation.decisions if spec.network is not None else ("argmax",)  # prices are not probabilities
        for problem in problems.of(trial):
            in_own_rounds(trial.name, own, problem.env)
            if not spec.any_scale and (problem.of_family or problem.env.cluster.num_rows != own.cluster.num_rows):
                continue  # the network is fixed to the number of servers of its training
            features = evaluation.features and not spec.dispatches and not problem.of_family
            seed = problem.seed_in(evaluation)
            for decision in decisions:
                yield EvaluationUnit(trial.name, trial.identity, problem, decision, seed, evaluation.episodes, features)
