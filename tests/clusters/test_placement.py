"""Which trainings fit this machine, what is said of those that wait, and what is not imported beside Ray's work."""

from __future__ import annotations

import sys

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.clusters.placement import trials_at_once, waiting
from rllib_scale.clusters.session import keep_trackers_unloaded
from rllib_scale.config import TrialResources
from rllib_scale.errors import UserError

pytestmark = LOCAL_RAY


def test_this_machine_refuses_what_it_cannot_hold_and_a_cluster_that_may_grow_does_not() -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])
    assert trials_at_once([TrialResources(cpus=1)], joined=False) == cpus
    assert trials_at_once([TrialResources(cpus=0.25)], joined=False) == 4 * cpus
    assert trials_at_once([TrialResources(cpus=1, env_runners=cpus - 1)], joined=False) == 1
    wide = TrialResources(cpus=1, env_runners=cpus)
    with pytest.raises(UserError, match=f"needs {cpus + 1} CPUs, 1 for its process and 1 for each of its {cpus} "):
        trials_at_once([wide], joined=False)
    assert trials_at_once([wide], joined=True) is None


def test_what_starts_is_counted_and_what_waits_is_told_why() -> None:
    import ray
    from ray.util import placement_group, remove_placement_group

    cpus = int(ray.cluster_resources()["CPU"])
    small, wide, large = TrialResources(cpus=1), TrialResources(cpus=1, env_runners=cpus), TrialResources(cpus=cpus + 1)
    assert waiting([small], 2)(2) == (0, "2 run at once")
    assert waiting([small], None)(9) == (0, "Ray is placing them")
    assert waiting([wide], None)(0) == (0, f"each needs {cpus + 1} CPUs; {cpus} of {cpus} are free")
    assert waiting([large], None)(0) == (0, f"each needs a node with {cpus + 1} CPUs; the largest has {cpus}")
    taken = placement_group([{"CPU": cpus}])
    assert taken.wait(30)
    assert waiting([small], None)(0) == (1, f"each needs 1 CPU; 0 of {cpus} are free")
    assert waiting([small], 1)(0) == (1, "1 run at once")
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
