"""A cluster of real processes on one machine: started, watched, started again when they are lost, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from easyrec.startup import worth_showing
from easyrec.training.cluster.roles import PS, VARIABLE, WORKER, Cluster, ClusterError, Role, serves

_POLL_SECONDS = 0.2
_STARTS_IN_A_ROW = 5
_QUICK_SECONDS = 20.0
_GRACE_SECONDS = 3.0

Tell = Callable[[str], None]


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that imports what this process can import."""
    paths = [path or os.getcwd() for path in sys.path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        **more,
    }


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], **options: object
) -> subprocess.Popen[bytes]:
    """Starts a module as a child in a session of its own, which Ctrl-C on the terminal does not reach."""
    return subprocess.Popen(
        # -P: a folder called `evaluation` or `serving` where the command is run must not hide a package.
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=child_environment(environment),
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )


def forward(stream: IO[bytes], prefix: str, log: Path, tell: Tell | None) -> threading.Thread:
    """Copies the lines of a child into a log file and, behind a prefix, to whoever watches.

    TensorFlow's records below an error go into the file alone. Where the disk is full the file lacks lines; the child,
    whose pipe must be emptied, does not notice.
    """

    def copy() -> None:
        with log.open("ab", buffering=0) as file, stream:
            for raw in iter(stream.readline, b""):
                with contextlib.suppress(OSError):
                    file.write(raw)
                if tell is not None:
                    for line in worth_showing([raw.decode(errors="replace")]):
                        tell(f"{prefix} {line.rstrip()}")

    thread = threading.Thread(target=copy, name=f"easyrec-log-{prefix}", daemon=True)
    thread.start()
    return thread


def end(process: subprocess.Popen[bytes], grace: float = _GRACE_SECONDS) -> None:
    """Ends a child and whatever it has started, gently first."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)  # a stopped process would not notice
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


class LocalProcesses:
    """The workers and parameter servers of a cluster on this machine.

    Used as a context: they are started when it is entered, and have all ended when it is left, also after an error.
    A watching thread starts a process again, at the same address, when it has ended unexpectedly.

    Args:
        cluster: Which roles.
        logs: Folder of their logs, `worker-0.log` and so on.
        tell: Called with lines for whoever watches.

    Attributes:
        lost: How often each role had to be started again, by its short name.
    """

    def __init__(self, cluster: Cluster, logs: Path, tell: Tell) -> None:
        self.cluster = cluster
        self.lost: dict[str, int] = {}
        self._logs = logs
        self._tell = tell
        self._processes: dict[Role, subprocess.Popen[bytes]] = {}
        self._started: dict[Role, float] = {}
        self._quick: dict[Role, int] = {}
        self._on_purpose: set[int] = set()
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._failure: ClusterError | None = None
        self._lock = threading.Lock()
        # Started from the watching thread, because Linux ties a child's life to the thread that started it.
        self._thread = threading.Thread(target=self._watch, name="easyrec-cluster", daemon=True)

    def __enter__(self) -> LocalProcesses:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by the roles' short names."""
        with self._lock:
            return {role.short: process.pid for role, process in self._processes.items()}

    def check(self) -> None:
        """Whether all is well.

        Raises:
            ClusterError: A process ends again and again; its last words are shown.
        """
        if self._failure is not None:
            raise self._failure

    def end_stuck(self, seconds: float = 2.0) -> list[Role]:
        """Ends the workers that do nothing while others work: stopped, or hanging. They are started again.

        Args:
            seconds: How long they are watched.
        """
        with self._lock:
            workers = {role: process for role, process in self._processes.items() if role.job == WORKER}
        before = {role: _busy(process.pid) for role, process in workers.items()}
        time.sleep(seconds)
        idle = {
            role for role, process in workers.items() if _busy(process.pid) - before[role] < 0.005 * seconds
        }
        stuck = [
            role
            for role, process in workers.items()
            if _stopped(process.pid) or (role in idle and len(idle) < len(workers))
        ]
        self._end_on_purpose([workers[role] for role in stuck])
        return stuck

    def begin_anew(self) -> None:
        """Ends all workers, which know too much of what was before, and servers that hang; they are started again."""
        with self._lock:
            found = dict(self._processes)
        grown = time.monotonic() - _QUICK_SECONDS  # one that was started after it is still on its way
        processes = [
            process
            for role, process in found.items()
            if role.job == WORKER or (self._started[role] < grown and not serves(role))
        ]
        self._end_on_purpose(processes)
        for process in processes:
            process.wait()  # so that nobody takes its port for that of the one started next

    def _end_on_purpose(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._on_purpose |= {process.pid for process in processes}
        for process in processes:
            process.kill()

    # On the watching thread.

    def _watch(self) -> None:
        try:
            for role in self.cluster.servers:
                self._start(role)
            self._ready.set()
            while not self._closing.wait(_POLL_SECONDS):
                for role, process in list(self._processes.items()):
                    if process.poll() is not None and self._failure is None:
                        self._again(role, process)
        finally:
            self._ready.set()
            with self._lock:
                processes = list(self._processes.values())
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
            for process in processes:
                end(process)

    def _start(self, role: Role) -> None:
        environment = {VARIABLE: self.cluster.tf_config(role)}
        if role.job == PS:
            environment |= {"CUDA_VISIBLE_DEVICES": "", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        process = start("easyrec.training.cluster.server", [str(os.getpid())], environment)
        if process.stdout is not None:
            forward(process.stdout, f"[{role.job} {role.index}]", self._log(role), self._tell)
        with self._lock:
            self._processes[role] = process
        self._started[role] = time.monotonic()

    def _again(self, role: Role, process: subprocess.Popen[bytes]) -> None:
        how = how_it_ended(process.returncode)
        end(process)
        if self._closing.is_set():
            return
        self.lost[role.short] = self.lost.get(role.short, 0) + 1
        if process.pid in self._on_purpose:
            self._on_purpose.discard(process.pid)
            self._tell(f"{role} is started anew")
            self._start(role)
            return
        lived = time.monotonic() - self._started[role]
        self._quick[role] = self._quick.get(role, 0) + 1 if lived < _QUICK_SECONDS else 1
        if self._quick[role] > _STARTS_IN_A_ROW:
            last = self._log(role).read_text(errors="replace").splitlines()[-5:]
            self._failure = ClusterError(
                f"{role} {how}, {self._quick[role]} times in a row. Its last words:\n  " + "\n  ".join(last)
            )
            return
        self._tell(f"{role} {how}; starting it again")
        self._start(role)

    def _log(self, role: Role) -> Path:
        return self._logs / f"{role.job}-{role.index}.log"


def how_it_ended(code: int) -> str:
    """The end of a process in words, from its exit code."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _busy(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
