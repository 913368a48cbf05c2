"""Optuna suggests the settings of a search's trainings, by Ray Tune's own search algorithm.

The study is rebuilt from the results at each start: finished trainings with their settings and scores, unfinished ones
with their settings. It is stored nowhere else, so it always agrees with the results.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna import distributions
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from rllib_scale.config.plan import Trial
from rllib_scale.config.search import Distribution, SearchConfig, integers_of
from rllib_scale.sweeps.history import SETTINGS, Curve, logged


class Suggestions(Searcher):
    """The pending trainings of a sweep in their order, each with suggested settings.

    A resumed training keeps its settings. The sampler is seeded by the search and the number of earlier points: with
    one seed it would begin with the same points again.

    Args:
        search: with a space.
        pending: the trainings to suggest settings for.
        curves: of all trainings so far, by name.
    """

    def __init__(self, search: SearchConfig, pending: Sequence[Trial], curves: Mapping[str, Curve]) -> None:
        one = len(search.metrics) == 1
        keys, modes = (search.score_keys[0], search.modes[0]) if one else (search.score_keys, search.modes)
        super().__init__(metric=keys, mode=modes)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=UserWarning, module="optuna")  # a choice may be a list
        self._space = search.space
        self._pending = deque(pending)
        self._names: dict[str, str] = {}  # Tune's id -> name
        unfinished = {trial.name for trial in pending}
        self._points: dict[str, dict[str, Any]] = {}
        scores: dict[str, dict[str, float]] = {}
        for name, curve in curves.items():
            if curve and SETTINGS in curve[-1]:
                self._points[name] = dict(curve[-1][SETTINGS])
                if name not in unfinished:
                    scores[name] = search.scores(curve)
        integers = integers_of(search)
        self._study = OptunaSearch(
            {path: _distribution(values, path in integers) for path, values in search.space.items()},
            points_to_evaluate=[*self._points.values()],
            metric=keys,
            mode=modes,
            seed=search.seed + len(self._points),
        )
        for name in self._points:  # it suggests the given points first, in their order
            self._study.suggest(name)
            if name in scores:
                self._study.on_trial_complete(name, scores[name])

    def suggest(self, trial_id: str) -> Any:
        """Tune's config of the next training."""
        if not self._pending:
            return Searcher.FINISHED
        trial = self._pending.popleft()
        self._names[trial_id] = trial.name
        if trial.name not in self._points:
            found = self._study.suggest(trial.name)
            self._points[trial.name] = {path: values.nearest(found[path]) for path, values in self._space.items()}
        point = self._points[trial.name]
        return {"trial": trial.name, "settings": logged(trial) | point, **point}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Optuna learns from trainings that have ended."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Give Optuna the scores of a training that has ended."""
        self._study.on_trial_complete(self._names[trial_id], result, error)


def _distribution(values: Distribution, integer: bool) -> distributions.BaseDistribution:
    if values.bounds is None:
        return distributions.CategoricalDistribution(values.ends())
    low, high = values.ends(integer)
    kind: Any = distributions.IntDistribution if integer else distributions.FloatDistribution
    return kind(low, high, log=values.loguniform is not None)
