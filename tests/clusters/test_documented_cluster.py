"""What docs/cluster.md says: the shipped files as far as Ray checks them, and a sweep as a Ray job on two nodes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytest.importorskip("aiohttp")
pytest.importorskip("jsonschema")

from rllib_scale.cli import main
from sweep_runs import SHORT, episodes

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent
PLANTED = "planted-secret-b1946ac92492d2347c6235b4d2611184"
SWEEP = f"""
name: tiny
methods: [scale]
algorithm: {{epochs: 2, {SHORT}}}
evaluation: {{scales: [8], episodes: 2, heuristics: [fastest-idle]}}
checkpoints: {{every_epochs: 1}}
"""
SECRETS = (".env", "key.pem", "private.key", "auth_token", "sub/.env")


def documented(heading: str) -> list[str]:
    """The command lines of one section of docs/cluster.md."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for block in re.findall(r"```\n(.*?)```", section, flags=re.DOTALL) for line in block.splitlines()]


def dockerfile() -> list[str]:
    return (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()


def copied_by_dockerfile() -> list[str]:
    """What the installation needs of a clone: files and folders."""
    return [path for line in dockerfile() if line.startswith("COPY") for path in line.split()[2:-1]]


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_ray_accepts_a_shipped_file_and_no_node_is_open(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load((ROOT / name).read_text()))
    validate_config(config)
    commands = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    starts = [line for line in commands if "ray start" in line]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in line for line in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]
    assert {path for path in config["file_mounts"].values() if not path.startswith("~")} == set(copied_by_dockerfile())
    assert config["setup_commands"][-1].endswith("/rllib-scale doctor --compile")
    if name == "cluster.yaml":
        head, worker = (config["available_node_types"][kind] for kind in ("head", "worker"))
        assert head["resources"]["CPU"] == worker["min_workers"] == 0
        assert "--num-cpus=0" in starts[0]


def test_the_job_for_kubernetes_runs_a_sweep_with_the_pinned_ray_on_workers_alone() -> None:
    job = yaml.safe_load((ROOT / "cluster-kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]

    program, name, *words = shlex.split(job["spec"]["entrypoint"].replace("/home/ray/rllib_scale", str(ROOT)))
    assert (program, name) == ("rllib-scale", "sweep")
    given = main.commands["sweep"].make_context(name, words).params
    assert given["address"] == "auto"
    assert given["results"].startswith("s3://")
    assert given["trust"], "a job that KubeRay submits again runs on a head that remembers nothing"

    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    assert cluster["rayVersion"] == pins["ray"]
    containers = [container for group in (head, workers) for container in group["template"]["spec"]["containers"]]
    assert [container["image"].split(":")[1] for container in containers] == [f"ray-{pins['ray']}"] * 2
    assert all(container["resources"]["requests"] == container["resources"]["limits"] for container in containers)
    assert head["rayStartParams"] == {"num-cpus": "0"}
    assert cluster["enableInTreeAutoscaling"]
    assert workers["replicas"] == workers["minReplicas"] == 0 < workers["maxReplicas"]
    assert cluster["authOptions"] == {"mode": "token"}

    (install,) = (line for line in dockerfile() if "pip install" in line)
    assert "--constraint constraints.txt" in install
    assert dockerfile()[-1] == "RUN rllib-scale doctor --compile"
    assert main.commands["doctor"].make_context("doctor", ["--compile"])


@pytest.mark.slow
def test_what_is_copied_to_a_node_installs_all_packages(tmp_path: Path) -> None:
    for path in copied_by_dockerfile():
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, tmp_path / path)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(tmp_path), str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {"rllib_scale/cli/__init__.py", "rllib_scale_analysis/__init__.py"} <= set(archive.namelist())


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def as_in_a_terminal() -> None:
    """For a new process: Ctrl-C ends it, also where this one ignores it, as a shell's background jobs do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Loopback:
    """The cluster, a home whose token it asks for, and a folder that looks like a clone."""

    def __init__(self, base: Path, ip: str) -> None:
        self.base, self.clone, self.shared = base, base / "clone", base / "shared"
        self.ports = free_ports(6)
        self.address = f"{ip}:{self.ports[0]}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "XDG_"))} | {
            "HOME": str(base / "home"),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "AWS_SECRET_ACCESS_KEY": PLANTED,
        }

    def here(self, line: str) -> str:
        """A documented line with this cluster's addresses and folders."""
        line = line.replace("HEAD:6379", self.address).replace("--port=6379", f"--port={self.ports[0]}")
        line = line.replace("http://127.0.0.1:8265", f"http://127.0.0.1:{self.ports[1]}")
        return line.replace("/shared/", f"{self.shared}/")

    def run(self, line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a documented line in the clone."""
        words = ["bash", "-c", self.here(line)]
        done = subprocess.run(words, cwd=self.clone, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, line: str) -> None:
        """A documented `ray start`, kept apart from every other Ray on this machine; two CPUs in all."""
        agent = self.ports[2 + len(self.nodes)]
        apart = f"--num-cpus=1 --object-store-memory=100000000 --dashboard-agent-listen-port={agent}"
        # Nodes that share a folder unpack a job's working directory over one another's.
        apart += f" --min-worker-port=0 --max-worker-port=0 --temp-dir={self.base / f'ray{len(self.nodes)}'}"
        if "--head" in line:
            apart += f" --dashboard-port={self.ports[1]} --ray-client-server-port={self.ports[4]}"
        log = self.base / f"node{len(self.nodes)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                shlex.split(f"{self.here(line)} {apart}"),
                env=self.environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=as_in_a_terminal,
            )
        self.nodes.append(process)
        deadline = time.monotonic() + 180
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """Ctrl-C in each terminal, the head's last, ends everything."""
        for node in reversed(self.nodes):
            node.send_signal(signal.SIGINT)
            node.wait(timeout=60)


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    import ray

    base = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))  # Ray's sockets need a short path
    cluster = Loopback(base, ray.util.get_node_ip_address())
    try:
        for folder in ("home", "shared", "clone/tune_configs"):
            (base / folder).mkdir(parents=True)
        (cluster.clone / "tune_configs" / "smoke.yaml").write_text(SWEEP)
        shutil.copy(ROOT / ".rayignore", cluster.clone)
        for line in documented("The token"):
            cluster.run(line)
        for line in documented("Without a cloud"):
            if line.startswith("ray start"):
                cluster.start(line)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)


def files_with(folder: Path, secret: str) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


@pytest.mark.cluster
@pytest.mark.ray
@pytest.mark.slow
def test_a_job_sends_no_secret_streams_its_log_and_is_resumed_under_a_new_id(loopback: Loopback) -> None:
    for name in SECRETS:
        (loopback.clone / name).parent.mkdir(exist_ok=True)
        (loopback.clone / name).write_text(PLANTED)
    (submit,) = (line for line in documented("Without a cloud") if line.startswith("ray job submit"))
    package = loopback.clone / "rllib_scale"  # a package in the working directory is what runs
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(3)")
    changed = submit.replace("--working-dir tune_configs", "--working-dir .").replace(
        " smoke.yaml", " tune_configs/smoke.yaml"
    )
    loopback.run(changed.replace("--submission-id smoke", "--submission-id other-code"), code=1)
    shutil.rmtree(package)

    other = loopback.run(f"RAY_AUTH_TOKEN={'0' * 64} rllib-scale doctor --address HEAD:6379", code=1)
    assert "the cluster's token is missing or another" in other.stdout
    assert "gcs_client" not in other.stdout + other.stderr, "Ray's own lines"

    lines = [line for line in documented("Without a cloud") if not line.startswith("ray start")]
    done = {line: loopback.run(line) for line in lines}
    assert "trainings 1/1 done" in done[submit].stdout
    here = loopback.clone / "results" / "smoke"
    assert len(episodes(here)) == 2 * 2
    assert (here / "report" / "report.html").is_file()

    assert "smoke already exists" in loopback.run(submit, code=1).stderr
    resumed = loopback.run(submit.replace("--submission-id smoke", "--submission-id smoke-2"))
    assert "Nothing is left to do" in resumed.stdout

    shutil.rmtree(loopback.base / "home" / ".local")  # as on a new head
    results = loopback.shared / "results" / "smoke"
    shutil.rmtree(results / "policies")
    shutil.rmtree(max(results.glob("trials/run-001/*/checkpoint_*")))  # the training has one of its two epochs
    anew = loopback.run(submit.replace("--submission-id smoke", "--submission-id smoke-3"))
    assert "0 of 1 trainings are finished, 1 resume" in anew.stdout
    assert "trainings 1/1 done" in anew.stdout
    wrong = submit.replace("--submission-id smoke", "--submission-id wrong") + " --set seeds=x"
    assert "seeds" in loopback.run(wrong, code=1).stdout  # the job's own error

    token = (loopback.base / "home" / ".ray" / "auth_token").read_text()
    assert files_with(loopback.base / "home", token)  # the search finds it where it is
    assert [*loopback.base.glob("ray*/session_2*/runtime_resources/working_dir_files/*/smoke.yaml")]
    for secret in (token, PLANTED):
        for folder in (loopback.shared, here, *loopback.base.glob("ray*/session_2*")):
            assert not files_with(folder, secret)
        assert not any(secret in run.stdout + run.stderr for run in done.values())
