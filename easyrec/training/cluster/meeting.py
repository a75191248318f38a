"""Processes that train in step find each other before TensorFlow waits for them, and see that they are alike."""

from __future__ import annotations

import json
import socket
from typing import Any

import tensorflow as tf

from easyrec.training.cluster.roles import (
    CHIEF,
    WORKER,
    Cluster,
    ClusterError,
    Role,
    check_port,
    listens,
    wait_for,
)
from easyrec.versions import versions

SAME = ("easyrec", "tensorflow", "keras")
"""Results depend on these; another version of the rest is no reason to refuse."""
_LONGEST = 512


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


def in_step(cluster: Cluster) -> list[Role]:
    """The processes that train in step, in the order of their replicas."""
    return [*cluster.roles(CHIEF), *cluster.roles(WORKER)]


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
