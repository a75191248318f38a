"""A worker or parameter server: a TensorFlow server that does what the chief asks, until it is told to end.

It needs neither data nor configuration: the chief sends it functions, and a worker reads shards itself. Run as a
module it serves the role that `TF_CONFIG` names, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from easyrec.errors import EasyRecError
from easyrec.training.cluster.roles import (
    VARIABLE,
    Cluster,
    ClusterError,
    Role,
    check_port,
    host_and_port,
    parse_tf_config,
)
from easyrec.versions import versions

_PR_SET_PDEATHSIG = 1
_LONGEST_NAME = 15
_STARTING_THREADS = 6
_DESCRIPTOR = 199  # far from those that a process has when it begins to serve
DESCRIPTION = f"/proc/self/fd/{_DESCRIPTOR}"
"""Where a role describes itself, for whoever asks it to read the file."""


def serve(cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Serves the role that this process has; returns when the process is asked to end.

    Args:
        cluster: With `task` a worker or parameter server.
        tell: Called with one line when it listens.

    Raises:
        ClusterError: Its port cannot be used.
    """
    role = cluster.task
    check_port(role)
    name_process(role)
    describe()
    share_cores(cluster)
    os.environ[VARIABLE] = cluster.tf_config(role)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    try:
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=role.job,
            task_index=role.index,
            protocol=resolver.rpc_layer or "grpc",
            start=True,
        )
    except tf.errors.OpError as error:
        raise ClusterError(
            f"{role}: cannot listen: {(error.message or str(error)).splitlines()[0]}"
        ) from error
    tell(f"{role} is listening")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    del server  # TensorFlow cannot stop a server; the process ends, and the server with it


def share_cores(cluster: Cluster) -> None:
    """Sets the threads of this process, unless its environment does; before TensorFlow makes any.

    Roles on one machine share its cores: a parallel loop waits for all its threads, so one that has to wait for a core
    holds up the others. A compiled dense part keeps one of the threads that start operations for as long as it
    computes, and what other batches fetch and push needs some, too.
    """
    host, _ = host_and_port(cluster.task)
    beside = sum(host_and_port(role)[0] == host for role in cluster.servers)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, cores // beside)))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(cores + _STARTING_THREADS))


def name_process(role: Role) -> None:
    """Gives the process the role's name, which `ps` and `top` show and by which the chief tells workers apart."""
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/comm").write_text(role.short[:_LONGEST_NAME], encoding="ascii")


def describe() -> None:
    """Makes a file in memory, under `DESCRIPTION` for this process alone, that says which versions it runs.

    The chief reads it there through this process's own server. It is gone with the process, and is nobody else's.
    """
    if sys.platform == "linux":
        file = os.memfd_create("easyrec")
        os.write(file, json.dumps({**versions(), "pid": os.getpid()}).encode())
        os.dup2(file, _DESCRIPTOR)
        os.close(file)


def end_with_parent(parent: int | None = None, watch: bool = True) -> None:
    """Ends this process when the one that started it ends, however that ends.

    Linux kills it, stopped or not; elsewhere it notices that its standard input has been closed.

    Args:
        parent: Process id of the parent, in case it has ended already.
        watch: Whether to watch standard input; not where somebody else reads it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:  # it ended in between
            os._exit(1)

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 1 << 12):
                pass
        os._exit(0)

    if watch and not sys.stdin.isatty():
        threading.Thread(target=wait, name="easyrec-parent", daemon=True).start()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Serves the role that `TF_CONFIG` names, as a child of the process that starts a cluster on one machine."""
    end_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else None)
    try:
        cluster = parse_tf_config(os.environ.get(VARIABLE))
        if cluster is None:
            raise ClusterError(f"{VARIABLE} is not set")
        serve(cluster, _say)
    except EasyRecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
