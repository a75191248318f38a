"""Where training runs, decided from the configuration, the environment and the devices that are there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from easyrec.config.training import TrainingConfig
from easyrec.errors import ConfigError
from easyrec.training.cluster.roles import (
    PS,
    VARIABLE,
    Cluster,
    ClusterError,
    LocalCluster,
    parse_local,
    parse_tf_config,
)


@dataclass(frozen=True)
class Choice:
    """Where training runs.

    Attributes:
        strategy: `local` or `parameter_server`.
        why: In words.
        cluster: The cluster, or None on one machine.
    """

    strategy: str
    why: str
    cluster: Cluster | LocalCluster | None = None


def choose(config: TrainingConfig, cluster: str | None = None) -> Choice:
    """Decides where training runs.

    Args:
        config: How the pipeline is trained.
        cluster: `local:workers=2,ps=2` to start a cluster on this machine; else `TF_CONFIG` describes one.

    Raises:
        ClusterError: The cluster is described wrongly.
        ConfigError: The strategy does not fit the cluster.
    """
    asked = config.strategy
    found: Cluster | LocalCluster | None = None
    if cluster is not None:
        found = parse_local(cluster)
        if asked not in ("auto", "parameter_server"):
            raise ConfigError(
                f"training.strategy: {asked!r} does not train on --cluster {cluster}; use 'auto'"
            )
        return Choice("parameter_server", f"parameter servers, because of --cluster {cluster}", found)
    found = parse_tf_config(os.environ.get(VARIABLE))
    if asked == "local":
        return Choice("local", "on this machine, as `training.strategy` says")
    if found is not None and found.roles(PS):
        return Choice(
            "parameter_server", f"parameter servers, because {VARIABLE} names {_counted(found)}", found
        )
    if asked == "parameter_server":
        what = f"{VARIABLE} is not set" if found is None else f"{VARIABLE} names no ps"
        raise ClusterError(
            f"training.strategy: parameter_server needs a cluster, but {what}; set it, or give "
            "--cluster local:workers=2,ps=2"
        )
    return Choice("local", "on this machine, because no cluster is described")


def _counted(cluster: Cluster) -> str:
    return ", ".join(f"{len(found)} {job}" for job, found in cluster.addresses.items() if found)
