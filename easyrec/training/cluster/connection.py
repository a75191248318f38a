"""The coordinator's connection to a cluster: all roles are there, run the same versions, and see the same shards."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import tensorflow as tf

from easyrec.data.prepared.shards import MANIFEST, ShardSet, join, reason_of
from easyrec.training.cluster.meeting import SAME
from easyrec.training.cluster.roles import (
    CHIEF,
    VARIABLE,
    WORKER,
    Cluster,
    ClusterError,
    Role,
    check_port,
    host_and_port,
    serves,
    wait_for,
)
from easyrec.training.cluster.server import DESCRIPTION
from easyrec.versions import versions


@dataclass(frozen=True)
class Connection:
    """A cluster that is connected.

    Attributes:
        cluster: Its roles.
        strategy: In whose scope variables go to the servers.
        coordinator: Hands functions to workers.
    """

    cluster: Cluster
    strategy: Any
    coordinator: Any


def connect(cluster: Cluster, timeout: float, warn: Callable[[str], None]) -> Connection:
    """Connects to all workers and servers.

    Args:
        cluster: Whose chief this process is.
        timeout: Seconds until all must have appeared.
        warn: Told what is not as it should be and no reason to stop.

    Raises:
        ClusterError: A role is missing or runs another version; it is named.
    """
    chief = Role(CHIEF, 0, cluster.task.address)
    if chief.address:
        check_port(chief)
    wait_for(cluster.servers, timeout)
    os.environ[VARIABLE] = cluster.tf_config(cluster.task)
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    except (tf.errors.OpError, ValueError) as error:
        raise ClusterError(
            f"the cluster cannot be connected: {reason_of(error)}. "
            f"Chief {chief.address or 'without address'}, servers {', '.join(map(str, cluster.servers))}"
        ) from error
    _check_versions(cluster, warn)
    return Connection(cluster, strategy, coordinator)


def _check_versions(cluster: Cluster, warn: Callable[[str], None]) -> None:
    """Whether all roles run the versions of this process; each describes itself in a file of its own."""
    own = versions()
    for role in cluster.servers:
        with tf.device(f"/job:{role.job}/replica:0/task:{role.index}/device:CPU:0"):
            try:
                theirs: Mapping[str, Any] = json.loads(tf.io.read_file(DESCRIPTION).numpy())
            except (tf.errors.NotFoundError, ValueError):
                warn(f"{role} does not say which versions it runs; it was not started by this program")
                continue
        different = [f"{name} {theirs.get(name)}" for name in SAME if theirs.get(name) != own[name]]
        if different:
            here = ", ".join(f"{name} {own[name]}" for name in SAME)
            raise ClusterError(
                f"{role} runs {', '.join(different)}, the chief runs {here}; install the same versions everywhere"
            )


def cut_off(cluster: Cluster, timeout: float = 5.0) -> list[Role]:
    """Ends the connections to workers that do not answer, so that TensorFlow takes them to be lost.

    A worker that hangs, or whose network is cut, breaks no connection for a quarter of an hour, and what the
    coordinator wants to tell it holds up what it has to tell the others. Its split goes to another worker, and it
    joins again when it answers.

    Args:
        cluster: Whose workers.
        timeout: Seconds to wait for an answer.

    Returns:
        The workers that do not answer.
    """
    silent = [role for role in cluster.roles(WORKER) if not serves(role, timeout)]
    places = {
        (found[4][0], found[4][1]) for role in silent for found in socket.getaddrinfo(*host_and_port(role))
    }
    for connection in psutil.Process().net_connections("tcp"):
        if (
            connection.status != psutil.CONN_LISTEN
            and (connection.raddr.ip.removeprefix("::ffff:"), connection.raddr.port) in places
        ):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as ours:
                ours.shutdown(socket.SHUT_RDWR)
    return silent


def check_shards(cluster: Cluster, shards: ShardSet) -> None:
    """Whether every worker sees the shards that the chief has.

    Raises:
        ClusterError: One sees none there, or others; it is named.
    """
    path = join(shards.folder, MANIFEST)
    hint = "All machines must reach the same folder under the same path; it is `training.shards.path`"
    for role in cluster.roles(WORKER):
        with tf.device(f"/job:{role.job}/replica:0/task:{role.index}/device:CPU:0"):
            try:
                theirs = json.loads(tf.io.read_file(path).numpy()).get("fingerprint")
            except (tf.errors.OpError, ValueError) as error:
                raise ClusterError(
                    f"{role} cannot read the shards at {path}: {reason_of(error)}. {hint}"
                ) from error
        if theirs != shards.fingerprint:
            raise ClusterError(
                f"{role} has other shards at {path} than the chief ({theirs} there, {shards.fingerprint} here). {hint}"
            )
