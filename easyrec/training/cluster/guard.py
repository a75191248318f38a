"""A process beside one that connects to others in step: it ends it when one of them hangs or is gone.

Nothing else could. TensorFlow waits for an hour, and holds Python's lock meanwhile, so that no thread and no signal
handler of the process runs. Once all are connected TensorFlow notices within seconds whoever is lost.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator

from easyrec.training.cluster.processes import child_environment
from easyrec.training.cluster.roles import VARIABLE, Cluster, in_step, parse_tf_config, serves


@contextlib.contextmanager
def guarded(cluster: Cluster, timeout: float) -> Iterator[None]:
    """Ends this process, with an error that names who hangs, when the block takes longer than `timeout` seconds."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "easyrec.training.cluster.guard", str(os.getpid()), str(timeout)],
        stdin=subprocess.PIPE,
        env=child_environment({VARIABLE: cluster.tf_config(cluster.task)}),
    ):
        yield


def main() -> None:
    """Waits until standard input is closed: the process has connected, or has ended."""
    process, timeout = int(sys.argv[1]), float(sys.argv[2])
    cluster = parse_tf_config(os.environ.get(VARIABLE))
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        if cluster is None or selector.select(timeout):
            return
    others = [role for role in in_step(cluster) if role != cluster.task]
    silent = [role for role in others if not serves(role)] or others
    sys.stderr.write(
        f"error: {timeout:g} seconds were not enough to connect {cluster.task} to {', '.join(map(str, silent))}, which "
        "hangs, is gone or cannot be reached. Look at its last words, and start all processes again. The time is "
        "`training.cluster.start_timeout`\n"
    )
    sys.stderr.flush()
    os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
