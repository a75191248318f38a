"""Processes that train in step find each other before TensorFlow waits for them, are alike, and name who is lost."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from easyrec.training.cluster.guard import guarded
from easyrec.training.cluster.roles import (
    Cluster,
    ClusterError,
    Role,
    check_port,
    in_step,
    listens,
    serves,
    wait_for,
)
from easyrec.versions import versions

SAME = ("easyrec", "tensorflow", "keras")
"""Results depend on these; another version of the rest is no reason to refuse."""
LOSSES = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)
"""What TensorFlow raises in a process that trains in step when another one is lost."""
_LONGEST = 512
_TROUBLE = re.compile(r"connect|[Uu]navailable|reset|timed? ?out|aborted", re.IGNORECASE)


def meet(cluster: Cluster, timeout: float) -> None:
    """Waits until all processes of a cluster without parameter servers have begun.

    TensorFlow would wait for an hour without a word. Each process listens on its port while it waits for the others;
    one that goes on early soon listens there again, as a TensorFlow server.

    Args:
        cluster: Whose processes train in step; this is one of them.
        timeout: Seconds to wait.

    Raises:
        ClusterError: A process does not appear, or somebody else listens on this one's port.
    """
    own = cluster.task
    check_port(own)
    with socket.socket() as here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(("", own.port))
        here.listen()
        wait_for([role for role in in_step(cluster) if role != own], timeout, answers=listens)


def connect_replicas(cluster: Cluster, timeout: float) -> tf.distribute.Strategy:
    """Connects the processes, which have met, and sees that they run the same versions.

    Args:
        cluster: As for `meet`.
        timeout: Seconds after which this process is ended, because another one hangs or is gone.

    Raises:
        ClusterError: A process is lost meanwhile, or runs other versions.
        RuntimeError: TensorFlow has computed something already.
    """
    with guarded(cluster, timeout):
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            check_versions(strategy, cluster)
        except LOSSES as error:
            raise ClusterError(
                f"{who_was_lost(error, in_step(cluster))} while the processes connected. Start all of them again"
            ) from error
    return strategy


def who_was_lost(error: BaseException, roles: Sequence[Role]) -> str:
    """Names the process that TensorFlow complains of, or else whichever does not answer."""
    found = re.search(r"/job:(\w+)/replica:0/task:(\d+)", str(error))
    named = [role for role in roles if found and role.short == f"{found[1]}:{found[2]}"]
    named = named or [role for role in roles if not serves(role)]
    reason = next(
        (line for line in str(error).splitlines() if _TROUBLE.search(line) and "File " not in line),
        type(error).__name__,
    )
    return f"{', '.join(map(str, named)) or 'a process'} was lost ({reason.strip()[:200]})"


def check_versions(strategy: Any, cluster: Cluster) -> None:
    """Whether all processes run the same versions.

    Raises:
        ClusterError: Some do not; they are named, to all processes alike.
    """
    text = json.dumps([versions()[name] for name in SAME]).encode().ljust(_LONGEST)[:_LONGEST]
    here = tf.constant([list(text)], tf.int32)

    @tf.function(autograph=False)
    def gathered() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(here, axis=0))

    rows = strategy.experimental_local_results(gathered())[0].numpy()
    roles = in_step(cluster)
    replicas = max(1, len(rows) // len(roles))
    found = [json.loads(bytes(row.tolist()).decode()) for row in rows[::replicas]]
    if any(one != found[0] for one in found):
        each = "; ".join(
            f"{role} runs {', '.join(f'{name} {version}' for name, version in zip(SAME, one, strict=True))}"
            for role, one in zip(roles, found, strict=False)
        )
        raise ClusterError(
            f"the processes run different versions: {each}. Install the same versions everywhere"
        )
