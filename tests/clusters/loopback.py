"""A Ray cluster of two nodes on loopback, started by the lines that docs/cluster.md gives, with a token."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent
PLANTED = "planted-secret-b1946ac92492d2347c6235b4d2611184"
SWEEP = """
name: tiny
methods: [scale]
training: {epochs: 2, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
evaluation: {scales: [8], episodes: 2, heuristics: [fastest-idle]}
checkpoints: {every_epochs: 1}
"""


def documented(heading: str, document: str = DOCUMENT) -> list[str]:
    """The command lines of one section of docs/cluster.md, or another document."""
    section = document.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for block in re.findall(r"```\n(.*?)```", section, flags=re.DOTALL) for line in block.splitlines()]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def as_in_a_terminal() -> None:
    """For a new process: Ctrl-C ends it, also where this one ignores it, as a shell's background jobs do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Loopback:
    """The cluster, a home whose token it asks for, and a folder that looks like a clone."""

    base: Path
    ip: str
    ports: list[int] = field(default_factory=lambda: free_ports(6))
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def clone(self) -> Path:
        return self.base / "clone"

    @property
    def shared(self) -> Path:
        return self.base / "shared"

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.ports[1]}"

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.ports[0]}"

    @property
    def token(self) -> str:
        return (self.base / "home" / ".ray" / "auth_token").read_text()

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "XDG_"))}
        return kept | {
            "HOME": str(self.base / "home"),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "AWS_SECRET_ACCESS_KEY": PLANTED,
        }

    def here(self, line: str) -> str:
        """A documented line with this cluster's addresses and folders."""
        line = line.replace("HEAD:6379", self.address).replace("--port=6379", f"--port={self.ports[0]}")
        return line.replace("http://127.0.0.1:8265", self.server).replace("/shared/", f"{self.shared}/")

    def run(self, line: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=self.clone, env=self.environment, capture_output=True, text=True, timeout=timeout
        )

    def start(self, line: str) -> None:
        """A documented `ray start`, kept apart from every other Ray on this machine; two CPUs in all."""
        agent = self.ports[2 + len(self.nodes)]
        apart = f"--num-cpus=1 --object-store-memory=100000000 --dashboard-agent-listen-port={agent}"
        # Nodes that share a folder unpack a job's working directory over one another's.
        apart += f" --min-worker-port=0 --max-worker-port=0 --temp-dir={self.base / f'ray{len(self.nodes)}'}"
        if "--head" in line:
            apart += f" --dashboard-port={self.ports[1]} --ray-client-server-port={self.ports[4]}"
        with (self.base / f"node{len(self.nodes)}.log").open("wb") as log:
            command = shlex.split(f"{self.here(line)} {apart}")
            command[0] = str(PROGRAMS / command[0])
            self.nodes.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=as_in_a_terminal,
                )
            )
        self.await_line(len(self.nodes) - 1, "Ray runtime started")

    def await_line(self, node: int, text: str) -> None:
        log = self.base / f"node{node}.log"
        deadline = time.monotonic() + 180
        while text not in log.read_text():
            assert self.nodes[node].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """Ctrl-C in each terminal, the head's last."""
        for node in reversed(self.nodes):
            node.send_signal(signal.SIGINT)
            try:
                node.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)

    def leftovers(self) -> list[str]:
        """Command lines of processes of this cluster that still run."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if f"{self.base}/ray" in words:
                found.append(words.replace("\0", " "))
        return found
