"""WfFormat: what its files mean, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wfcommons import WorkflowGenerator
from wfcommons.wfchef.recipes import MontageRecipe

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.wfformat import FORMAT
from rllib_scale.workloads.model import Workload
from workloads.mutations import MISSING, changed


def task(name: str, parents: str = "", children: str = "", reads: str = "", writes: str = "") -> dict[str, Any]:
    return {
        "name": "any",
        "id": name,
        "parents": parents.split(),
        "children": children.split(),
        "inputFiles": reads.split(),
        "outputFiles": writes.split(),
    }


def instance(**changes: Any) -> dict[str, Any]:
    """A fork and a join: a -> b, c -> d. File `ab` goes to b, `both` to b and c, `log` to nobody."""
    specification = {
        "tasks": [
            task("d", parents="b c", reads="bd cd", writes="end"),
            task("a", children="b c", reads="begin", writes="ab both log"),
            task("b", parents="a", children="d", reads="ab both", writes="bd"),
            task("c", parents="a", children="d", reads="both", writes="cd"),
        ],
        "files": [
            {"id": name, "sizeInBytes": size * 10**6}
            for name, size in {"begin": 7, "ab": 1, "both": 20, "log": 300, "bd": 4000, "cd": 0, "end": 50}.items()
        ],
    }
    execution = {
        "makespanInSeconds": 9,
        "executedAt": "2026-01-01T00:00:00Z",
        "tasks": [
            {"id": "a", "runtimeInSeconds": 2.5, "memoryInBytes": 3e9, "coreCount": 1, "machines": ["slow"]},
            {"id": "b", "runtimeInSeconds": 1, "memoryInBytes": 500_000_000, "coreCount": 4, "machines": ["fast"]},
            {"id": "c", "runtimeInSeconds": 0, "coreCount": 2, "machines": ["fast", "slow"]},
            {"id": "d", "runtimeInSeconds": 4, "memoryInBytes": 0},
        ],
        "machines": [
            {"nodeName": "slow", "cpu": {"coreCount": 2, "speedInMHz": 2000}},
            {"nodeName": "fast", "cpu": {"coreCount": 8, "speedInMHz": 4000}},
            {"nodeName": "other"},
        ],
    }
    workflow = {"specification": specification, "execution": execution}
    return {"name": "sample", "schemaVersion": "1.6", "workflow": workflow} | changes


def read(folder: Path, content: Any, progress: Progress | None = None, **mapping: Any) -> Workload:
    contents = content if isinstance(content, list) else [content]
    for i, one in enumerate(contents):
        (folder / f"{i}.json").write_text(json.dumps(one))
    return FORMAT.read([folder], FORMAT.mapping(**mapping), progress or Progress())


@pytest.mark.parametrize("content", [instance(), instance(schemaVersion="1.5")], ids=["1.6", "1.5"])
def test_what_a_file_means(tmp_path: Path, content: dict[str, Any]) -> None:
    progress = Progress()
    found = read(tmp_path, content, progress)
    assert found.arrival_s.tolist() == [0]
    np.testing.assert_allclose(found.compute_gflop, [4, 2.5, 1, 0.001])  # d a b c; 0 s is a millisecond
    np.testing.assert_allclose(found.memory_gb, [0, 3, 0.5, 1])  # c does not say
    # a: `ab` and `both`, which two tasks read; b: 4 GB; c: an empty file; d: a sink has all that it writes.
    np.testing.assert_allclose(found.output_gb, [0.05, 0.021, 4, 0])
    assert found.edges.tolist() == [[1, 2], [1, 3], [2, 0], [3, 0]]
    np.testing.assert_allclose(found.moved_gb, [0.021, 0.02, 4, 0])  # what each reads of it
    assert {what: count for what, count in progress.counts.items() if count} == {
        "tasks without memoryInBytes": 1,
        "tasks of several cores that are played on one place": 2,
        "MB of files that no task writes, read but not moved": 7,
    }
    assert progress.unread["workflow.execution.machines"] == 1
    assert progress.unread["workflow.execution.tasks.machines"] == 3


def as_1_4(newer: dict[str, Any], end: str) -> dict[str, Any]:
    """An instance of version 1.4 of the same content, its edges given at one end."""
    parts = newer["workflow"]["specification"], newer["workflow"]["execution"]
    sizes = {file["id"]: file["sizeInBytes"] for file in parts[0]["files"]}
    executed = {task["id"]: task for task in parts[1]["tasks"]}
    tasks = []
    for number, task in enumerate(parts[0]["tasks"]):
        files = [("input", name) for name in task["inputFiles"]] + [("output", name) for name in task["outputFiles"]]
        ran = executed[task["id"]]
        tasks.append(
            {"name": task["id"], "id": f"ID{number}", "type": "compute", "runtimeInSeconds": ran["runtimeInSeconds"]}
            | {end: task[end], "files": [{"link": link, "name": f, "sizeInBytes": sizes[f]} for link, f in files]}
            | ({"memoryInBytes": ran["memoryInBytes"]} if "memoryInBytes" in ran else {})
            | ({"cores": ran["coreCount"]} if "coreCount" in ran else {})
        )
    return {"name": "sample", "schemaVersion": "1.4", "workflow": {"makespanInSeconds": 9, "tasks": tasks}}


@pytest.mark.parametrize("end", ["parents", "children"])
def test_version_1_4_is_read_as_its_content_in_1_6(end: str, tmp_path: Path) -> None:
    counts = []
    for content in (as_1_4(instance(), end), instance()):
        progress = Progress()
        found = read(tmp_path, content, progress, count_cores=True)
        counts.append({what: count for what, count in progress.counts.items() if count})
        if content["schemaVersion"] == "1.4":
            older = found
    assert older.equals(found)
    assert counts[0] == counts[1]
    twice = as_1_4(instance(), end)
    twice["workflow"]["tasks"][1]["name"] = "b"
    with pytest.raises(UserError, match="two tasks have the name or id 'b'"):
        read(tmp_path, twice)


def test_other_versions_are_refused_with_the_way_to_convert_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"schemaVersion '1\.3': valid: 1\.4, 1\.5, 1\.6; convert .*migrate-instance"):
        read(tmp_path, instance(schemaVersion="1.3"))
    with pytest.raises(UserError, match=r"workflow\.tasks is missing; version 1\.4 needs it"):
        read(tmp_path, instance(schemaVersion="1.4"))


def test_the_mapping(tmp_path: Path) -> None:
    fast = read(tmp_path, instance(), reference_gflops=10)
    np.testing.assert_allclose(fast.compute_gflop, [40, 25, 10, 0.01])
    np.testing.assert_allclose(read(tmp_path, instance(), count_cores=True).compute_gflop, [4, 2.5, 4, 0.002])
    progress = Progress()
    of_cores = read(tmp_path, instance(), progress, places="cores")
    assert (of_cores.places.tolist(), of_cores.compute_gflop.tolist()) == ([1, 1, 4, 2], [4, 2.5, 1, 0.001])
    assert not progress.counts["tasks of several cores that are played on one place"]
    np.testing.assert_allclose(read(tmp_path, instance(), min_runtime_s=0.5).compute_gflop, [4, 2.5, 1, 0.5])
    assert read(tmp_path, instance(), default_memory_gb=7).memory_gb.tolist() == [0, 3, 0.5, 7]


def test_what_is_missing_is_filled_and_counted(tmp_path: Path) -> None:
    bare = instance()
    del bare["workflow"]["execution"], bare["workflow"]["specification"]["files"]
    with pytest.raises(UserError, match=r"0\.json: task 'd': key 'runtimeInSeconds' is missing.*default_runtime_s"):
        read(tmp_path, bare)
    progress = Progress()
    found = read(tmp_path, bare, progress, default_runtime_s=3, default_memory_gb=2, default_output_gb=0.25)
    assert found.compute_gflop.tolist() == [3] * 4
    assert found.memory_gb.tolist() == [2] * 4
    assert found.output_gb.tolist() == [0.25] * 4
    assert progress.counts == {
        "tasks without runtimeInSeconds": 4,
        "tasks without memoryInBytes": 4,
        "tasks without outputFiles or their sizes": 4,
    }
    del bare["workflow"]["specification"]["tasks"][1]["outputFiles"]
    bare["workflow"]["specification"]["files"] = instance()["workflow"]["specification"]["files"]
    assert read(tmp_path, bare, default_runtime_s=3, default_output_gb=0.25).output_gb.tolist() == [0.05, 0.25, 4, 0]


def test_files_arrive_one_after_the_other(tmp_path: Path) -> None:
    two = instance()
    two["workflow"]["execution"]["tasks"][0]["runtimeInSeconds"] = 8
    found = read(tmp_path, [instance(), two], arrival_gap_s=1.5)
    assert found.arrival_s.tolist() == [0, 1.5]
    assert found.compute_gflop[[1, 5]].tolist() == [2.5, 8]
    assert found.session.tolist() == [0, 1]
    assert read(tmp_path, [instance(), two]).arrival_s.tolist() == [0, 0]


# ---------------------------------------------------------------------- what is refused

SPECIFICATION, EXECUTION = ("workflow", "specification"), ("workflow", "execution")
BAD: list[tuple[tuple[Any, ...], Any, list[str]]] = [
    (("schemaVersion",), "1.7", ["schemaVersion", "'1.7'", "1.5, 1.6"]),
    (("workflow",), {"specification": {"tasks": []}}, ["specification.tasks: must have at least 1 entry"]),
    ((*SPECIFICATION, "tasks", 0, "parents"), ["b"], ["the edge from 'c' to 'd' is in children, but not in parents"]),
    ((*SPECIFICATION, "tasks", 1, "children"), ["b"], ["the edge from 'a' to 'c' is in parents, but not in children"]),
    ((*SPECIFICATION, "tasks", 0, "parents"), ["b", "x"], ["task 'd': parents names 'x'"]),
    ((*SPECIFICATION, "tasks", 0, "children"), ["d"], ["task 'd': children names 'd'"]),
    ((*SPECIFICATION, "tasks", 0, "id"), "a", ["specification.tasks: id 'a' appears twice"]),
    ((*SPECIFICATION, "tasks", 2, "inputFiles"), ["zz"], ["task 'b': inputFiles names 'zz'"]),
    ((*SPECIFICATION, "tasks", 2, "outputFiles"), ["zz"], ["task 'b': outputFiles names 'zz'"]),
    ((*SPECIFICATION, "files", 0, "id"), "ab", ["specification.files: id 'ab' appears twice"]),
    ((*EXECUTION, "tasks", 0, "id"), "b", ["execution.tasks: id 'b' appears twice"]),
    ((*EXECUTION, "tasks", 0, "id"), "x", ["execution: task 'x': id is no task"]),
    ((*EXECUTION, "tasks", 0, "runtimeInSeconds"), MISSING, ["task 'a': key 'runtimeInSeconds' is missing"]),
]


def test_mistakes_are_named(tmp_path: Path) -> None:
    for path, value, parts in BAD:
        with pytest.raises(UserError) as caught:
            read(tmp_path, changed(instance(), path, value))
        assert str(caught.value).startswith(f"{tmp_path / '0.json'}: ")
        assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_cycle_is_shown(tmp_path: Path) -> None:
    tasks = [task("a", children="b", parents="d"), task("b", "a", "c d"), task("c", "b"), task("d", "b", "a")]
    content = instance(workflow={"specification": {"tasks": tasks}})
    with pytest.raises(UserError, match=r"0\.json: parents form a cycle: (a -> b -> d -> a|b -> d)"):
        read(tmp_path, content, default_runtime_s=1)


def test_what_the_package_of_the_format_writes_is_read(tmp_path: Path) -> None:
    workflow = WorkflowGenerator(MontageRecipe.from_num_tasks(150)).build_workflow()
    workflow.write_json(tmp_path / "montage.json")
    found = FORMAT.read([tmp_path], FORMAT.mapping(reference_gflops=2), Progress())
    names = list(workflow.tasks)
    edges = [(names[p], names[s]) for p, s in found.edges.tolist()]
    assert sorted(edges) == sorted(workflow.edges)
    runtimes = np.array([task.runtime for task in workflow.tasks.values()])
    np.testing.assert_allclose(found.compute_gflop, 2 * np.maximum(runtimes, 0.001))
    for row, task in enumerate(workflow.tasks.values()):
        readers = [workflow.tasks[name] for name in workflow.successors(task.task_id)]
        read_later = {file.file_id for reader in readers for file in reader.input_files}
        if readers:
            moved = sum(file.size for file in task.output_files if file.file_id in read_later)
            assert found.output_gb[row] == pytest.approx(moved / 1e9)
    assert found.output_gb.max() > 0
