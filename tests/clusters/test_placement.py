"""Which trainings fit this machine, what is said of those that wait, and what is not imported beside Ray's work."""

from __future__ import annotations

import sys

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.clusters.placement import trials_at_once, why_waiting
from rllib_scale.clusters.session import keep_trackers_unloaded
from rllib_scale.config import TrialResources
from rllib_scale.errors import UserError

pytestmark = LOCAL_RAY


def test_this_machine_refuses_what_it_cannot_hold_and_a_cluster_that_may_grow_does_not() -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])
    assert trials_at_once(TrialResources(cpus=1), joined=False) == cpus
    assert trials_at_once(TrialResources(cpus=0.25), joined=False) == 4 * cpus
    assert trials_at_once(TrialResources(cpus=1, env_runners=cpus - 1), joined=False) == 1
    wide = TrialResources(cpus=1, env_runners=cpus)
    with pytest.raises(UserError, match=f"needs {cpus + 1} CPUs, 1 for its process and 1 for each of its {cpus} "):
        trials_at_once(wide, joined=False)
    assert trials_at_once(wide, joined=True) is None


def test_what_waits_is_told_why() -> None:
    import ray
    from ray.util import placement_group, remove_placement_group

    cpus = int(ray.cluster_resources()["CPU"])
    small, wide = TrialResources(cpus=1), TrialResources(cpus=1, env_runners=cpus)
    assert why_waiting(small, 2)(2) == "2 at once"
    assert why_waiting(small, 2)(1).startswith("starting")
    assert why_waiting(small, None)(9).startswith("starting")
    needs = f"needs {cpus + 1} CPUs, {cpus} of {cpus} are free, the largest node has {cpus}"
    assert why_waiting(wide, None)(0) == needs
    taken = placement_group([{"CPU": cpus}])
    assert taken.wait(30)
    assert why_waiting(small, None)(0) == f"needs 1 CPUs, 0 of {cpus} are free, the largest node has {cpus}"
    assert why_waiting(small, 2)(0).startswith("starting"), "on a Ray of its own, the sweep itself took the CPUs"
    remove_placement_group(taken)


def test_no_tracker_is_imported_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import tune
    from ray.air._internal import usage

    monkeypatch.setattr(usage, "tag_callbacks", usage.tag_callbacks)  # put back at the end
    integrations = [f"ray.air.integrations.{name}" for name in ("wandb", "mlflow")]
    for name in integrations:
        monkeypatch.delitem(sys.modules, name, raising=False)
    keep_trackers_unloaded()
    usage.tag_callbacks([tune.Callback()])
    assert not sys.modules.keys() & set(integrations)
