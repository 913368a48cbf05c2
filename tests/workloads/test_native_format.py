"""The JSON workload: read, validated, sorted, written."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config import ClusterConfig
from rllib_scale.errors import UserError
from rllib_scale.workloads.model import Workload
from workloads.mutations import MISSING, changed

ARRAYS = ("arrival_s", "task_offsets", "compute_gflop", "memory_gb", "output_gb", "edge_offsets", "edges")


def task(compute=9.1, memory=12.0, output=0.4):
    return {"compute_gflop": compute, "memory_gb": memory, "output_gb": output}


def workload(*workflows):
    return {"format": "rllib-scale-workload", "version": 1, "workflows": list(workflows)}


def valid():
    return workload(
        {"arrival_s": 0.3, "tasks": [task(), task(2.0)], "edges": [[0, 1]]},
        {"arrival_s": 0.5, "tasks": [task(3.0), task(4.0), task(5.0)], "edges": [[0, 1], [1, 2]]},
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "workload.json"


def test_sorts_workflows_by_arrival_and_keeps_the_order_of_equal_ones():
    read = Workload.from_dict(
        workload(
            {"arrival_s": 2, "tasks": [task(1)], "edges": []},
            {"arrival_s": 1, "tasks": [task(2), task(3), task(4)], "edges": [[2, 0], [1, 0]]},
            {"arrival_s": 2, "tasks": [task(5), task(6)], "edges": [[1, 0]]},
            {"arrival_s": 1, "tasks": [task(7)], "edges": []},
        ),
        "test",
    )
    np.testing.assert_array_equal(read.arrival_s, [1, 1, 2, 2])
    np.testing.assert_array_equal(read.compute_gflop, [2, 3, 4, 7, 1, 5, 6])
    np.testing.assert_array_equal(read.task_offsets, [0, 3, 4, 5, 7])
    np.testing.assert_array_equal(read.edges, [[1, 0], [2, 0], [1, 0]])
    np.testing.assert_array_equal(read.edge_offsets, [0, 2, 2, 2, 3])


positive = st.floats(min_value=1e-15, max_value=1e15)
not_negative = st.floats(min_value=0, max_value=1e15)


@st.composite
def workflows(draw):
    count = draw(st.integers(1, 6))
    names = draw(st.permutations(range(count)))  # so that an edge may lead to a lower index
    pairs = [[names[i], names[j]] for i in range(count) for j in range(i + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique_by=tuple)) if pairs else []
    tasks = [task(draw(positive), draw(not_negative), draw(not_negative)) for _ in range(count)]
    return {"arrival_s": draw(not_negative), "tasks": tasks, "edges": edges}


@given(st.lists(workflows(), min_size=1, max_size=5))
def test_save_and_load_give_back_every_bit(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("workload") / "w.json"
    written = Workload.from_dict(workload(*content), "test")
    written.save(path)
    read = Workload.load(path)
    assert read.equals(written)
    for name in ARRAYS:
        assert getattr(read, name).tobytes() == getattr(written, name).tobytes()
        assert getattr(read, name).dtype == getattr(written, name).dtype
    by_arrival = sorted(content, key=lambda w: w["arrival_s"])
    assert json.loads(path.read_text()) == workload(*[w | {"edges": sorted(w["edges"])} for w in by_arrival])


def with_sessions(*numbers):
    data = valid() | {"version": 3}
    for workflow, number in zip(data["workflows"], numbers, strict=True):
        if number is not None:
            workflow["session"] = number
    return data


def test_a_file_is_of_the_lowest_version_that_can_hold_it(path):
    data = valid()
    data["workflows"].reverse()  # out of order: numbered as they are sorted
    plain = Workload.from_dict(data, "test")
    assert Workload.from_dict(with_sessions(0, 1), "test").equals(plain)
    data["version"] = 2
    data["workflows"][0]["tasks"][1]["delay_s"] = 1.5
    delayed = Workload.from_dict(data, "test")
    data = with_sessions(7, 3)
    data["workflows"].append({"arrival_s": 0.4, "session": 7, "tasks": [task(6.0)], "edges": []})
    numbered = Workload.from_dict(data, "test")
    np.testing.assert_array_equal(numbered.compute_gflop, [9.1, 2.0, 6.0, 3.0, 4.0, 5.0])
    for written, version, sessions in ((plain, 1, [0, 1]), (delayed, 2, [0, 1]), (numbered, 3, [7, 7, 3])):
        written.save(path)
        assert Workload.load(path).equals(written)
        content = json.loads(path.read_text())
        assert content == written.to_dict()
        assert content["version"] == version
        assert written.session.tolist() == sessions
        assert all(("session" in workflow) == (version == 3) for workflow in content["workflows"])


def test_edges_deadlines_and_tasks_without_work_are_of_version_4(path):
    data = valid() | {"version": 4}
    data["workflows"][1]["edges"] = [[1, 2, 0.25], [0, 1]]  # sorted with what they move
    data["workflows"][1]["tasks"][1]["compute_gflop"] = 0
    data["workflows"][0]["deadline_s"] = 7.5
    data["workflows"].reverse()
    read = Workload.from_dict(data, "test")
    assert read.moved_gb.tolist() == [0.4, 0.4, 0.25]
    assert read.deadline_s.tolist() == [7.5, np.inf]
    read.save(path)
    assert Workload.load(path).equals(read)
    assert json.loads(path.read_text())["version"] == 4
    other_way_round = read.take(np.array([1, 0]), np.array([0.0, 1.0]))
    assert other_way_round.moved_gb.tolist() == [0.4, 0.25, 0.4]
    assert other_way_round.deadline_s.tolist() == [np.inf, 7.5]
    assert Workload.from_dict(valid(), "test").moved_gb.tolist() == [0.4, 0.4, 0.4]


def test_an_edge_that_moves_all_output_follows_it_when_that_is_replaced():
    data = valid() | {"version": 4}
    data["workflows"][1]["edges"] = [[0, 1], [1, 2, 0.25]]
    read = Workload.from_dict(data, "test")
    larger = replace(read, output_gb=read.output_gb * 10)
    assert larger.moved_gb.tolist() == [4, 4, 0.25]
    assert not larger.equals(read)
    assert Workload.from_dict(larger.to_dict(), "written").moved_gb.tolist() == [4, 4, 0.25]
    assert replace(read, memory_gb=2 * read.memory_gb).moved_gb.tolist() == read.moved_gb.tolist()


def test_labels_are_read_written_taken_and_sorted(path):
    data = valid() | {"version": 4}
    data["workflows"][0]["tasks"][1]["labels"] = ["eu", "a100"]
    data["workflows"][1]["tasks"][0] |= {"labels": ["eu"], "places": 2}
    data["workflows"].reverse()
    read = Workload.from_dict(data, "test")
    tiers = [{"name": f"t{k}", "count": 1, "compute_gflops": 1, "memory_gb": 80} for k in range(2)]
    cluster = ClusterConfig(tiers=[tiers[0] | {"labels": ["us", "eu"]}, tiers[1] | {"labels": ["eu", "a100"]}])
    assert cluster.label_names == ("a100", "eu", "us")
    assert cluster.labels_of_tiers == [0b110, 0b011]
    assert read.labels_on(cluster).tolist() == [0, 0b011, 0b010, 0, 0]
    read.save(path)
    assert Workload.load(path).equals(read)
    assert json.loads(path.read_text())["version"] == 4
    assert read.places.tolist() == [1, 1, 2, 1, 1]
    assert read.take(np.array([1, 0]), np.array([0.0, 1.0])).labels_on(cluster).tolist() == [0b010, 0, 0, 0, 0b011]
    plain = Workload.from_dict(valid(), "test")
    assert replace(plain, labels=[0, 0, 1, 0, 0], label_names=("mars",)).labels_on(cluster).tolist()[2] == 2**62


def test_equals_sees_every_array():
    one = Workload.from_dict(valid(), "test")
    for name in (*ARRAYS, "delay_s", "session", "edge_gb", "deadline_s", "labels", "places"):
        other = Workload.from_dict(valid(), "test")
        getattr(other, name)[-1] = 17
        assert not one.equals(other), name


W = "workflows"
TASK = [W, 1, "tasks", 2]
ERRORS = [  # what is wrong, and the key and the value that the message names
    ([1], ["workload: must be a mapping"]),
    (changed(valid(), ["format"], "dax"), ["format", "'dax'"]),
    (changed(valid(), ["version"], 5), ["version", "5"]),
    (changed(valid(), ["name"], "x"), ["unknown key 'name'; valid: format, version, workflows"]),
    (changed(valid(), [W, 1, "arrival_s"], "0.5"), ["workflow 1: arrival_s", "'0.5'"]),
    (changed(valid(), [W, 1, "arrival_s"], -1), ["workflow 1: arrival_s", "-1.0"]),
    (changed(valid(), [W, 0], {"arrival_s": 0, "tasks": [], "edges": []}), ["workflow 0: no tasks"]),
    (changed(valid(), [*TASK, "memory_gb"], MISSING), ["workflow 1: tasks.2.memory_gb"]),
    (changed(valid(), [*TASK, "compute_gflop"], 1e-16), ["workflow 1, task 2: compute_gflop", "0 or from 1e-15"]),
    (changed(valid(), [W, 0, "deadline_s"], 0), ["workflow 0: deadline_s", "0.0"]),
    (changed(valid(), [W, 1, "edges", 0], [0, 1, -1.0]), ["workflow 1, edge [0, 1]: must move", "-1.0"]),
    (changed(valid(), [W, 1, "edges", 0], [0, 1, float("nan")]), ["workflow 1: edges.0.2"]),
    (changed(valid(), [W, 1, "edges", 0], [0, 1, 2.0, 3.0]), ["workflow 1: edges.0"]),
    (changed(valid(), [*TASK, "compute_gflop"], float("nan")), ["workflow 1, task 2: compute_gflop", "nan"]),
    (changed(valid(), [*TASK, "compute_gflop"], 10**400), ["workflow 1: tasks.2.compute_gflop", "1000"]),
    (changed(valid(), [*TASK, "memory_gb"], -0.5), ["workflow 1, task 2: memory_gb", "-0.5"]),
    (changed(valid(), [W, 1, "edges", 0], [0, 2**63]), ["workflow 1: edges.0", "9223372036854775808"]),
    (changed(valid(), [W, 1, "edges", 0], [0, 3]), ["workflow 1, edge [0, 3]: unknown task 3; valid: 0 to 2"]),
    (changed(valid(), [W, 1, "edges", 0], [-1, 2]), ["workflow 1, edge [-1, 2]: unknown task -1"]),
    (changed(valid(), [W, 1, "edges", 0], [2, 2]), ["workflow 1, edge [2, 2]"]),
    (changed(valid(), [W, 1, "edges"], [[0, 1], [1, 2], [0, 1]]), ["workflow 1, edge [0, 1]: appears twice"]),
    (changed(valid(), [*TASK, "places"], 0), ["workflow 1: tasks.2.places", "0"]),
    (changed(valid(), [*TASK, "labels"], ["a b"]), ["workflow 1: tasks.2.labels.0", "'a b'"]),
    (changed(valid(), [*TASK, "labels"], [f"l{k}" for k in range(63)]), ["63 different labels", "62"]),
    (with_sessions(0, None), ["workflow 1: session must be given in every workflow or in none"]),
    (with_sessions(None, 0), ["workflow 1: session must be given in every workflow or in none"]),
]


def test_a_mistake_is_one_line_with_file_key_and_value(path):
    for data, parts in ERRORS:
        path.write_text(json.dumps(data))
        with pytest.raises(UserError) as caught:
            Workload.load(path)
        line = str(caught.value)
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        assert all(part in line for part in parts), (line, parts)


def test_what_is_no_file_of_json_is_refused(path):
    with pytest.raises(UserError, match=r"workload\.json: cannot be read"):
        Workload.load(path)
    twice = '{"format": "rllib-scale-workload", "version": 1, "version": 1}'
    for text, message in (
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (twice, "'version' appears twice"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            Workload.load(path)


@given(st.data())
def test_a_cycle_that_is_named_is_a_cycle(data):
    count = data.draw(st.integers(2, 7))
    ring = data.draw(st.permutations(range(count)))[: data.draw(st.integers(2, count))]
    edges = {(ring[i - 1], ring[i]) for i in range(len(ring))}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] != p[1])
    edges |= set(data.draw(st.lists(pairs)))
    with pytest.raises(UserError, match="workflow 0: the edges form a cycle: ") as caught:
        Workload.from_dict(workload({"arrival_s": 0, "tasks": [task()] * count, "edges": list(edges)}), "test")
    named = [int(i) for i in str(caught.value).rpartition(": ")[2].split(" -> ")]
    assert named[0] == named[-1]
    assert len(set(named)) == len(named) - 1 >= 2
    assert edges >= set(itertools.pairwise(named))


def test_a_task_that_fits_no_server_is_named():
    data = valid()
    data["workflows"][1]["tasks"][2]["memory_gb"] = 80.5
    read = Workload.from_dict(data, "test")
    cluster = ClusterConfig.model_validate("paper-16")
    tiers = [cluster.tiers[0], cluster.tiers[2].model_copy(update={"memory_gb": 80.5, "labels": ("a100", "eu")})]
    larger = cluster.model_copy(update={"tiers": tuple(tiers)})
    read.check_fits(larger, "w.json")
    message = (
        r"^w.json: workflow 1, task 2 \(arrival_s 0.5\) fits no server: memory_gb is 80.5, .* has 80.0; tiers: small"
    )
    with pytest.raises(UserError, match=message):
        read.check_fits(cluster, "w.json")
    data["version"] = 4
    for labels, memory_gb, text in (
        (["a100", "eu"], 80.5, ""),
        (["a100"], 81.0, r"memory_gb is 81.0, the largest server with its labels \(a100\) has 80.5"),
        (["a10"], 1.0, "unknown label 'a10'; did you mean 'a100'"),
    ):
        data["workflows"][1]["tasks"][2] |= {"labels": labels, "memory_gb": memory_gb}
        read = Workload.from_dict(data, "test")
        if text:
            with pytest.raises(UserError, match=text):
                read.check_fits(larger, "w.json")
        else:
            read.check_fits(larger, "w.json")
    data["workflows"][1]["tasks"][2] |= {"labels": ["eu"], "places": 3}
    with pytest.raises(UserError, match=r"places is 3, the largest server with its labels \(eu\) has max_concurrent 1"):
        Workload.from_dict(data, "test").check_fits(larger, "w.json")
    data["workflows"][1]["tasks"][2]["places"] = 1
    few = [tier.model_copy(update={"labels": (name,)}) for tier, name in zip(tiers, ("a100", "eu"), strict=True)]
    data["workflows"][1]["tasks"][2] |= {"labels": ["eu", "a100"]}
    with pytest.raises(UserError, match=r"labels are eu, a100, and no server has them all"):
        Workload.from_dict(data, "test").check_fits(cluster.model_copy(update={"tiers": tuple(few)}), "w.json")


def test_arrays_are_checked_too():
    one = Workload.from_dict(valid(), "test")
    for message, change in (
        ("task_offsets must hold 3 values from 0 to 5", {"task_offsets": [0, 2]}),
        ("task_offsets must hold 3 values from 0 to 5", {"task_offsets": [0, 2, 4]}),
        ("task_offsets must not decrease", {"task_offsets": [0, 6, 5]}),
        ("edge_offsets must not decrease", {"edge_offsets": [0, 4, 3]}),
        ("memory_gb must hold 5 values", {"memory_gb": np.ones(4)}),
        ("session must hold 2 values, one a workflow", {"session": [0]}),
    ):
        with pytest.raises(UserError, match=message):
            Workload(**{name: getattr(one, name) for name in ARRAYS} | change)


def test_a_file_is_replaced_as_a_whole_or_left_alone(path):
    path.write_text("something longer than what is written over it" * 100)
    one = Workload.from_dict(valid(), "test")
    one.save(path)
    assert Workload.load(path).equals(one)
    (path.parent / "taken").mkdir()
    for target in (path.parent / "taken", path / "w.json"):
        with pytest.raises(UserError, match=rf"{target.name}: cannot be written"):
            one.save(target)
    assert Workload.load(path).equals(one)
    assert sorted(path.parent.iterdir()) == [path.parent / "taken", path]
