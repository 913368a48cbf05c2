"""What this process does before and beside Ray's work."""

from __future__ import annotations

import sys

import pytest

from rllib_scale.clusters.session import keep_trackers_unloaded


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
