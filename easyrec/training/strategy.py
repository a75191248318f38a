"""Where training runs, decided from the configuration, the environment and the devices that are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from easyrec.config.training import TrainingConfig
from easyrec.errors import ConfigError, TrainingError, nearest
from easyrec.training.cluster.meeting import connect_replicas, meet
from easyrec.training.cluster.roles import (
    CHIEF,
    PS,
    VARIABLE,
    WORKER,
    Cluster,
    ClusterError,
    ClusterUsageError,
    LocalCluster,
    in_step,
    parse_local,
    parse_tf_config,
    trains_in_step,
)
from easyrec.training.replicas import Replicas


@dataclass(frozen=True)
class Choice:
    """Where training runs.

    Attributes:
        strategy: `local`, `mirrored`, `multi_worker` or `parameter_server`.
        why: In words, to follow `training`.
        cluster: The cluster, or None on one machine.
        devices: What `mirrored` trains on.
        start_timeout: Seconds until every process must have appeared.
    """

    strategy: str
    why: str
    cluster: Cluster | LocalCluster | None = None
    devices: tuple[str, ...] = ()
    start_timeout: float = 120.0

    @property
    def chief(self) -> bool:
        """Whether this process measures and exports; only some processes of `multi_worker` do not."""
        if self.strategy != "multi_worker" or not isinstance(self.cluster, Cluster):
            return True
        task = self.cluster.task
        return task.job == CHIEF or (task.index == 0 and not self.cluster.roles(CHIEF))

    @property
    def replicas(self) -> int:
        """How many batches make a step without parameter servers; every process is taken to have this one's GPUs."""
        if self.strategy == "multi_worker" and isinstance(self.cluster, Cluster):
            return len(in_step(self.cluster)) * max(1, len(check_devices(())))
        return max(1, len(self.devices)) if self.strategy == "mirrored" else 1


def choose(config: TrainingConfig, cluster: str | None = None) -> Choice:
    """Decides where training runs.

    Args:
        config: How the pipeline is trained.
        cluster: `local:workers=2,ps=2` to start a cluster on this machine; else `TF_CONFIG` describes one.

    Raises:
        ClusterError: The cluster is described wrongly.
        ConfigError: The strategy does not fit the cluster, or a device is not there.
    """
    choice = _choose(config, cluster)
    if config.synchronized_batch_norm and choice.strategy == "parameter_server":
        raise ConfigError(
            "training.synchronized_batch_norm: on parameter servers workers see no other worker's rows; use "
            "`training.strategy: mirrored` or `multi_worker`, or leave it out"
        )
    return replace(choice, start_timeout=config.cluster.start_timeout)


def _choose(config: TrainingConfig, cluster: str | None) -> Choice:
    asked: str = config.strategy
    described = parse_tf_config(os.environ.get(VARIABLE)) if cluster is None else None
    # On parameter servers it is the workers that compute; the machines of other roles need no such device.
    computes = described is None or not described.roles(PS) or described.task.job == WORKER
    devices = check_devices(config.devices) if computes else ()
    if cluster is not None:
        found = parse_local(cluster)
        if asked not in ("auto", "parameter_server"):
            raise ConfigError(
                f"training.strategy: {asked!r} does not train on --cluster {cluster}; use 'auto'"
            )
        return Choice("parameter_server", f"with parameter servers: --cluster {cluster}", found)
    if asked == "auto":
        asked, why = _automatic(described, devices)
    else:
        why = f"`training.strategy: {asked}`"
    if asked == "local":
        return Choice("local", f"on this machine: {why}")
    if asked == "mirrored":
        if len(devices) < 2:
            raise ConfigError(
                f"training.strategy: mirrored needs two or more devices, here are {', '.join(devices) or 'none'}. "
                "Name them in `training.devices`, or use 'local'"
            )
        return Choice("mirrored", f"on {', '.join(devices)}: {why}", None, devices)
    described = _described(asked, described)
    kind = "parameter servers" if asked == "parameter_server" else "workers in step"
    return Choice(asked, f"with {kind}: {why} ({VARIABLE}: {_counted(described)})", described)


def _described(asked: str, described: Cluster | None) -> Cluster:
    """The cluster, if it is one for the strategy asked for."""
    if described is None:
        example = (
            "--cluster local:workers=2,ps=2" if asked == "parameter_server" else "a `worker` for each process"
        )
        raise ClusterError(
            f"training.strategy: {asked} needs a cluster, but {VARIABLE} is not set; give {example}"
        )
    if asked == "parameter_server":
        for job in (CHIEF, WORKER, PS):
            if not described.roles(job):
                raise ClusterUsageError(
                    f"parameter servers need a chief, a worker and a ps, but {VARIABLE} names no {job} "
                    f"({_counted(described)})"
                )
    elif described.roles(PS):
        raise ClusterError(
            f"training.strategy: multi_worker has no ps, but {VARIABLE} names {_counted(described)}"
        )
    return described


def check_chief(cluster: Cluster) -> None:
    """Whether this process is the chief of a cluster with parameter servers, who alone trains.

    Raises:
        ClusterUsageError: It is another role.
    """
    if cluster.task.job != CHIEF:
        raise ClusterUsageError(
            f"this process is {cluster.task} ({VARIABLE}), which serves the chief; start it with `easyrec train CONFIG`"
        )


def _automatic(described: Cluster | None, devices: Sequence[str]) -> tuple[str, str]:
    """What `auto` means here, and why."""
    if described is not None and described.roles(PS):
        return "parameter_server", f"a ps in {VARIABLE}"
    if trains_in_step(described):
        return "multi_worker", f"several workers and no ps in {VARIABLE}"
    if len(devices) > 1:
        return "mirrored", f"{len(devices)} devices"
    return "local", f"{VARIABLE} describes no cluster, {devices[0] if devices else 'no GPU is here'}"


def check_devices(named: Sequence[str]) -> tuple[str, ...]:
    """The devices to train on: those named, else all GPUs.

    Raises:
        ConfigError: A device named is not there.
    """
    there = [f"{device.device_type.lower()}:{device.name.rpartition(':')[2]}" for device in _logical()]
    for name in named:
        if not any(device == name or device.partition(":")[0] == name for device in there):
            raise ConfigError(
                f"training.devices: {name!r} is not on this machine.{nearest(name, there)} Is the driver installed, "
                "and CUDA_VISIBLE_DEVICES not empty?"
            )
    if named:
        chosen = [
            device for device in there for name in named if device == name or device.partition(":")[0] == name
        ]
        return tuple(dict.fromkeys(chosen))
    return tuple(device for device in there if device.startswith("gpu"))


def _logical() -> list[tf.config.LogicalDevice]:
    # Asking for logical devices starts TensorFlow, after which collective operations cannot be set up any more.
    return [*tf.config.list_physical_devices("CPU"), *tf.config.list_physical_devices("GPU")]


def start_replicas(choice: Choice) -> Replicas | None:
    """Connects the replicas of a synchronous training; None for other strategies.

    To be called before TensorFlow computes anything, because it sets collective operations up when it starts.

    Raises:
        TrainingError: TensorFlow has computed something already.
        ClusterError: A process does not appear or runs other versions, or this one's port is taken.
    """
    if choice.strategy == "mirrored":
        names = [f"/{device}" for device in choice.devices]
        return Replicas(tf.distribute.MirroredStrategy(names), len(names), 0, len(names))
    if choice.strategy != "multi_worker" or not isinstance(choice.cluster, Cluster):
        return None
    cluster, roles = choice.cluster, in_step(choice.cluster)
    if cluster.task not in roles:
        raise ClusterUsageError(
            f"this process is {cluster.task} ({VARIABLE}), which measures beside training; start it with "
            "`easyrec train CONFIG`"
        )
    meet(cluster, choice.start_timeout)
    try:
        strategy = connect_replicas(cluster, choice.start_timeout)
    except RuntimeError as error:
        raise TrainingError(
            "training.strategy: multi_worker must be set up before TensorFlow computes anything in this process; call "
            "`easyrec.train` first"
        ) from error
    count = strategy.num_replicas_in_sync
    local = count // len(roles)
    return Replicas(strategy, count, roles.index(cluster.task) * local, local, choice.chief, roles)


def _counted(cluster: Cluster) -> str:
    return ", ".join(f"{len(found)} {job}" for job, found in cluster.addresses.items() if found)
