"""The public library: the modules that the API pages of the site describe. Scripts of studies import nothing else."""

from __future__ import annotations


def _modules(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"rllib_scale{package}.{name}" for name in names.split())


API: dict[str, tuple[str, tuple[str, ...]]] = {
    "tables": ("Columns and metrics", ()),
    "config": ("Settings", ("rllib_scale.config", *_modules(".config", "sweep family search"))),
    "library": (
        "Workloads, episodes, results",
        (
            *_modules(".workloads", "model generators family"),
            *_modules(".evaluation", "play workflows candidates"),
            *("rllib_scale.simulator.backend", "rllib_scale.simulator.event_engine"),
            "rllib_scale.simulator.outside_state",
            *_modules(".observation", "snapshot view answers policy"),
            "rllib_scale.envs.gantt",
        ),
    ),
    "analysis": (
        "Statistics, tables, figures",
        (
            "rllib_scale_analysis",
            *_modules("_analysis", "labels rows stats.intervals stats.scores stats.summaries"),
            *_modules("_analysis.tables", "comparisons family league relative render summary"),
            *_modules("_analysis.figures", "chart comparison draw style"),
        ),
    ),
    "envs": ("Environments", ("rllib_scale.envs", "rllib_scale.envs.vector")),
    "schedulers": (
        "Schedulers",
        _modules(".schedulers", "base dispatcher rules list_scheduling reserving context_price adaptive_price"),
    ),
    "policies": (
        "Policies",
        (*_modules(".policies", "policy dispatch_policy onnx_export"), "rllib_scale.zoo"),
    ),
    "rl": ("RLlib", _modules(".rl", "methods env_runner ppo.group ppo.lean_update ppo.loss")),
    "live": ("Live", _modules(".live", "library backend")),
}
"""Page of docs/api -> its title and modules. The pages are written by conf.py: only a site can show them."""
ON_OTHER_PAGES = (
    *("rllib_scale.config.schedulers", "rllib_scale.config.replicas", "rllib_scale.loading"),
    *("rllib_scale.policies.make", "rllib_scale.observation.replicas", "rllib_scale.simulator.replicas.scripts"),
    *("rllib_scale.results.columns", "rllib_scale_analysis.load"),
)
"""Public too: docs/library.md, docs/replicas.md and the pages of their packages use what is in them."""
