"""Where training runs, decided from the configuration, the environment and the devices that are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from easyrec.config.training import TrainingConfig
from easyrec.errors import ConfigError, TrainingError, nearest
from easyrec.training.cluster.roles import (
    CHIEF,
    PS,
    VARIABLE,
    WORKER,
    Cluster,
    ClusterError,
    LocalCluster,
    parse_local,
    parse_tf_config,
)
from easyrec.training.replicas import Replicas


@dataclass(frozen=True)
class Choice:
    """Where training runs.

    Attributes:
        strategy: `local`, `mirrored`, `multi_worker` or `parameter_server`.
        why: In words.
        cluster: The cluster, or None on one machine.
        devices: What `mirrored` trains on.
    """

    strategy: str
    why: str
    cluster: Cluster | LocalCluster | None = None
    devices: tuple[str, ...] = ()

    @property
    def chief(self) -> bool:
        """Whether this process measures and exports; only some processes of `multi_worker` do not."""
        if self.strategy != "multi_worker" or not isinstance(self.cluster, Cluster):
            return True
        task = self.cluster.task
        return task.job == CHIEF or (task.index == 0 and not self.cluster.roles(CHIEF))


def choose(config: TrainingConfig, cluster: str | None = None) -> Choice:
    """Decides where training runs.

    Args:
        config: How the pipeline is trained.
        cluster: `local:workers=2,ps=2` to start a cluster on this machine; else `TF_CONFIG` describes one.

    Raises:
        ClusterError: The cluster is described wrongly.
        ConfigError: The strategy does not fit the cluster, or a device is not there.
    """
    asked: str = config.strategy
    devices = check_devices(config.devices)
    if cluster is not None:
        found = parse_local(cluster)
        if asked not in ("auto", "parameter_server"):
            raise ConfigError(
                f"training.strategy: {asked!r} does not train on --cluster {cluster}; use 'auto'"
            )
        return Choice("parameter_server", f"parameter servers, because of --cluster {cluster}", found)
    described = parse_tf_config(os.environ.get(VARIABLE))
    if asked == "auto":
        asked, why = _automatic(described, devices)
    else:
        why = f"`training.strategy: {asked}`"
    if asked == "local":
        return Choice("local", f"on this machine, because of {why}")
    if asked == "mirrored":
        if len(devices) < 2:
            raise ConfigError(
                f"training.strategy: mirrored needs two or more devices, here are {', '.join(devices) or 'none'}. "
                "Name them in `training.devices`, or use 'local'"
            )
        return Choice("mirrored", f"on {', '.join(devices)}, because of {why}", None, devices)
    if described is None:
        example = (
            "--cluster local:workers=2,ps=2" if asked == "parameter_server" else "a `worker` for each process"
        )
        raise ClusterError(
            f"training.strategy: {asked} needs a cluster, but {VARIABLE} is not set; give {example}"
        )
    if asked == "parameter_server" and not described.roles(PS):
        raise ClusterError(f"training.strategy: parameter_server needs a ps, but {VARIABLE} names none")
    if asked == "multi_worker" and described.roles(PS):
        raise ClusterError(
            f"training.strategy: multi_worker has no ps, but {VARIABLE} names {_counted(described)}"
        )
    kind = "parameter servers" if asked == "parameter_server" else "workers in step"
    return Choice(asked, f"{kind}, because of {why} ({VARIABLE}: {_counted(described)})", described)


def _automatic(described: Cluster | None, devices: Sequence[str]) -> tuple[str, str]:
    """What `auto` means here, and why."""
    if described is not None and described.roles(PS):
        return "parameter_server", f"a ps in {VARIABLE}"
    if described is not None and len(described.roles(WORKER)) + len(described.roles(CHIEF)) > 1:
        return "multi_worker", f"several workers and no ps in {VARIABLE}"
    if len(devices) > 1:
        return "mirrored", f"{len(devices)} devices"
    return "local", "no cluster described and no second GPU"


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
    """
    if choice.strategy == "mirrored":
        names = [f"/{device}" for device in choice.devices]
        return Replicas(tf.distribute.MirroredStrategy(names), len(names), 0, len(names))
    if choice.strategy != "multi_worker" or not isinstance(choice.cluster, Cluster):
        return None
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise TrainingError(
            "training.strategy: multi_worker must be set up before TensorFlow computes anything in this process; call "
            "`easyrec.train` first"
        ) from error
    count = strategy.num_replicas_in_sync
    task = choice.cluster.task
    local = count // max(1, len(choice.cluster.roles(WORKER)) + len(choice.cluster.roles(CHIEF)))
    number = task.index + (len(choice.cluster.roles(CHIEF)) if task.job == WORKER else 0)
    return Replicas(strategy, count, number * local, local, choice.chief)


def _counted(cluster: Cluster) -> str:
    return ", ".join(f"{len(found)} {job}" for job, found in cluster.addresses.items() if found)
