"""Which trainings fit a cluster, and how many at once."""

from __future__ import annotations

import pytest

from rllib_scale.clusters.placement import Room, check_fits, cluster_room, trials_at_once, why_waiting
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import TrialResources
from rllib_scale.errors import UserError


@pytest.mark.parametrize(
    ("nodes", "cpus", "env_runners", "at_once"),
    [
        ((4,), 1, 0, 4),
        ((4,), 1, 1, 2),
        ((2, 2, 2), 1, 2, 2),  # a training's three CPUs lie on two nodes
        ((0, 2, 2), 2, 0, 2),
        ((3, 3), 2, 0, 2),  # a learner's CPUs lie on one node
        ((3, 3), 2, 1, 2),
        ((1.5, 1.5), 1, 1, 1),
        ((1, 1), 2, 0, 0),
        ((4,), 1, 4, 0),
        ((), 1, 0, 0),
    ],
)
def test_number_that_fits_at_once(nodes: tuple[float, ...], cpus: float, env_runners: int, at_once: int) -> None:
    assert trials_at_once(TrialResources(cpus=cpus, env_runners=env_runners), Room(nodes)) == at_once


@pytest.mark.parametrize(
    ("resources", "room", "why"),
    [
        ({"cpus": 8}, Room((2.0, 1.0)), "a training needs 8 CPUs on one node, the largest node has 2"),
        (
            {"env_runners": 8},
            Room((2.0, 2.0, 1.0)),
            "needs 9 CPUs, 1 for its learner and 1 for each of its 8 environment runners; "
            "the cluster has 5 CPUs (2 x 2, 1 x 1)",
        ),
    ],
)
def test_what_can_never_fit_is_refused_with_the_numbers(resources: dict[str, int], room: Room, why: str) -> None:
    with pytest.raises(UserError) as caught:
        check_fits(TrialResources(**resources), room)
    assert why in str(caught.value)


def test_where_nobody_knows_how_far_a_cluster_grows_nothing_is_refused() -> None:
    room = Room((0.0,), grows=True)
    check_fits(TrialResources(cpus=8), room)
    assert trials_at_once(TrialResources(), room) is None


@pytest.mark.ray
def test_what_waits_is_told_why() -> None:
    said: list[str] = []
    with ray_session(num_cpus=2, say=said.append):
        assert said == ["starting Ray on this machine"]
        room = cluster_room()
        assert (room.nodes, room.grows) == ((2.0,), False)
        assert why_waiting(TrialResources(cpus=1), 2, room)(2) == "2 at once"
        assert why_waiting(TrialResources(cpus=1), 2, room)(1).startswith("starting")
        needs = "needs 3 CPUs, the largest node has 2 free, all nodes 2"
        assert why_waiting(TrialResources(cpus=1, env_runners=2), 1, room)(0) == needs
        from ray.util import placement_group

        assert placement_group([{"CPU": 2}]).wait(30)
        assert why_waiting(TrialResources(cpus=1), 2, room)(0).startswith("starting"), "who else has the room?"
