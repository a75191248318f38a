"""The coordinator's connection to a cluster: all roles are there, run the same versions, and say how busy they are."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from easyrec.training.cluster.load import Stat, parse_stat
from easyrec.training.cluster.roles import (
    CHIEF,
    PS,
    VARIABLE,
    Cluster,
    ClusterError,
    Role,
    check_port,
    wait_for,
)
from easyrec.training.cluster.server import description_path
from easyrec.training.cluster.split_function import worker_stat
from easyrec.versions import versions

_WATCH_SECONDS = 5.0
# Results depend on these; another version of the rest is no reason to refuse.
_SAME = ("easyrec", "tensorflow", "keras")


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

    def watch_servers(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Asks the parameter servers every few seconds how busy they are, on a thread of its own."""
        asks = {role: _asks(role) for role in self.cluster.roles(PS)}

        def watch() -> None:
            before: dict[str, tuple[float, Stat]] = {}
            while True:
                loads = {}
                for role, ask in asks.items():
                    try:
                        stat = parse_stat(ask().numpy())
                    except tf.errors.OpError:
                        return  # lost; the trainer notices
                    now = time.monotonic()
                    then, earlier = before.get(role.short, (now - _WATCH_SECONDS, stat))
                    loads[role.short] = {
                        "cpus": round((stat.cpu_seconds - earlier.cpu_seconds) / max(now - then, 1e-3), 3),
                        "memory_mib": stat.memory_bytes / 2**20,
                    }
                    before[role.short] = now, stat
                tell(loads)
                time.sleep(_WATCH_SECONDS)

        threading.Thread(target=watch, name="easyrec-servers", daemon=True).start()


def _asks(role: Role) -> Any:
    """A function that asks the process that has a role what Linux says of it.

    It is traced here: a new function is told to every process of the cluster, and would wait for one that hangs.
    """

    def ask() -> tf.Tensor:
        with tf.device(f"/job:{role.job}/replica:0/task:{role.index}/device:CPU:0"):
            return worker_stat()

    return tf.function(ask, autograph=False).get_concrete_function()


def connect(cluster: Cluster, timeout: float, warn: Callable[[str], None]) -> Connection:
    """Connects to all workers and servers.

    Args:
        cluster: Whose chief this process is.
        timeout: Seconds until all must have appeared.
        warn: Told what is not as it should be and no reason to stop.

    Raises:
        ClusterError: A role is missing or runs another version; it is named.
    """
    for job in ("worker", PS):
        if not cluster.roles(job):
            raise ClusterError(
                f"{VARIABLE} names no {job}; a parameter-server cluster has at least one worker and one ps"
            )
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
            f"the cluster cannot be connected: {str(error).splitlines()[0]}. "
            f"Chief {chief.address or 'without address'}, servers {', '.join(map(str, cluster.servers))}"
        ) from error
    _check_versions(cluster, warn)
    return Connection(cluster, strategy, coordinator)


def _check_versions(cluster: Cluster, warn: Callable[[str], None]) -> None:
    """Whether all roles run the versions of this process; each describes itself in a file on its own machine."""
    own = versions()
    for role in cluster.servers:
        path = description_path(role)
        with tf.device(f"/job:{role.job}/replica:0/task:{role.index}/device:CPU:0"):
            try:
                theirs: Mapping[str, Any] = json.loads(tf.io.read_file(path).numpy())
            except tf.errors.NotFoundError:
                warn(f"{role} does not say which versions it runs; it was not started by this program")
                continue
        different = [f"{name} {theirs.get(name)}" for name in _SAME if theirs.get(name) != own[name]]
        if different:
            here = ", ".join(f"{name} {own[name]}" for name in _SAME)
            raise ClusterError(
                f"{role} runs {', '.join(different)}, the chief runs {here}; install the same versions everywhere"
            )
