"""Who is who in a cluster: `TF_CONFIG` as TensorFlow users know it, and clusters of processes on one machine."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easyrec.errors import TrainingError, nearest

VARIABLE = "TF_CONFIG"
CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
JOBS = (CHIEF, WORKER, PS, EVALUATOR)
_PORTS = range(15_000, 32_768)  # below those of outgoing connections (net.ipv4.ip_local_port_range)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER, _SETTINGS = 9, 4
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\s/]+):(?P<port>[0-9]{1,5})")
_NUMBER = re.compile("[0-9]{1,9}")
_EXAMPLE = (
    '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


class ClusterError(TrainingError):
    """A cluster is described wrongly, or a role of it cannot be reached."""


class ClusterUsageError(ClusterError):
    """`TF_CONFIG` or `--cluster` cannot be understood."""

    exit_code = 2


@dataclass(frozen=True)
class Role:
    """One process of a cluster.

    Attributes:
        job: `chief`, `worker`, `ps` or `evaluator`.
        index: Its number in the job.
        address: `host:port`, or "" for an evaluator, which nobody calls.
    """

    job: str
    index: int
    address: str = ""

    def __str__(self) -> str:
        return f"{self.job} {self.index}" + (f" at {self.address}" if self.address else "")

    @property
    def short(self) -> str:
        """`worker:0`, the name that its process bears."""
        return f"{self.job}:{self.index}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])


@dataclass(frozen=True)
class Cluster:
    """All roles, and which of them this process is.

    Attributes:
        addresses: Addresses by job.
        task: This process.
    """

    addresses: Mapping[str, tuple[str, ...]]
    task: Role

    def roles(self, job: str) -> list[Role]:
        """The processes of a job."""
        return [Role(job, index, address) for index, address in enumerate(self.addresses.get(job, ()))]

    @property
    def servers(self) -> list[Role]:
        """The processes that the chief calls: workers and parameter servers."""
        return [*self.roles(WORKER), *self.roles(PS)]

    def tf_config(self, role: Role) -> str:
        """The value of `TF_CONFIG` for one of its processes."""
        return json.dumps(
            {
                "cluster": {job: list(found) for job, found in self.addresses.items()},
                "task": {"type": role.job, "index": role.index},
            }
        )


def in_step(cluster: Cluster) -> list[Role]:
    """The processes that train in step, without parameter servers, in the order of their replicas."""
    return [*cluster.roles(CHIEF), *cluster.roles(WORKER)]


def trains_in_step(cluster: Cluster | None) -> bool:
    """Whether a cluster is one of several processes that train in step, without parameter servers."""
    return cluster is not None and not cluster.roles(PS) and len(in_step(cluster)) > 1


def parse_tf_config(text: str | None) -> Cluster | None:
    """The cluster that the variable `TF_CONFIG` describes, or None when it is unset or empty.

    Raises:
        ClusterError: It is malformed; what is wrong, and an example, are named.
    """
    if text is None or not text.strip():
        return None
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except ClusterError:
        raise
    except (ValueError, RecursionError) as error:
        raise _wrong(f"it is not JSON: {error}; got {text[:80]!r}") from error
    if value == {}:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("cluster"), dict):
        raise _wrong(f"an object with `cluster` and `task` is needed, got {text[:80]}")
    addresses = {job: _addresses(job, listed) for job, listed in value["cluster"].items()}
    if len(addresses.get(CHIEF, ())) > 1:
        raise _wrong(f"it names {len(addresses[CHIEF])} chiefs; there is one")
    taken: dict[str, str] = {}
    for job, found in addresses.items():
        for index, address in enumerate(found):
            if address in taken:
                raise _wrong(f"it gives {address} to both {taken[address]} and {job} {index}")
            taken[address] = f"{job} {index}"
    return Cluster(addresses, _task(value.get("task"), addresses))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a name that is there twice would hide what the first one says."""
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _wrong(f"it gives {', '.join(map(repr, twice))} twice in one object")
    return dict(pairs)


def _addresses(job: str, listed: Any) -> tuple[str, ...]:
    if job not in JOBS:
        hint = " Call it 'chief'." if job == "master" else nearest(job, JOBS)
        raise _wrong(f"it has an unknown job {job!r} in `cluster`.{hint}")
    if not isinstance(listed, list) or not all(isinstance(address, str) for address in listed):
        raise _wrong(f'`cluster.{job}` is a list of addresses such as "host:2222", got {listed!r}')
    for index, address in enumerate(listed):
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise _wrong(f"the address of {job} {index} is `host:port`, got {address!r}")
    return tuple(listed)


def _task(task: Any, addresses: Mapping[str, tuple[str, ...]]) -> Role:
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        raise _wrong(
            f'`task` says which process this is, such as {{"type": "worker", "index": 0}}, got {task!r}'
        )
    job = task["type"]
    if "index" not in task and len(addresses.get(job, ())) > 1:
        raise _wrong(
            f"it does not say which {job} this is: give `task.index`, from 0 to {len(addresses[job]) - 1}"
        )
    index = task.get("index", 0)
    if isinstance(index, str) and _NUMBER.fullmatch(index):
        index = int(index)
    if job not in JOBS:
        raise _wrong(f"it has the task type {job!r}, which is unknown.{nearest(job, JOBS)}")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise _wrong(f"`task.index` is a number from 0, got {index!r}")
    if job == EVALUATOR:
        return Role(job, index)
    found = addresses.get(job, ())
    if index >= len(found):
        raise _wrong(
            f"this process is {job} {index}, but `cluster.{job}` has {len(found)} addresses: {list(found)}"
        )
    return Role(job, index, found[index])


def _wrong(what: str) -> ClusterError:
    end = "" if what.endswith((".", "?")) else "."
    return ClusterUsageError(f"the environment variable {VARIABLE}: {what}{end}\nExample: {_EXAMPLE}")


@dataclass(frozen=True)
class LocalCluster:
    """How many processes to start on this machine.

    Attributes:
        workers: Workers.
        ps: Parameter servers.
    """

    workers: int
    ps: int


def parse_local(text: str) -> LocalCluster:
    """What `--cluster local:workers=2,ps=2` asks for.

    Raises:
        ClusterError: It is malformed.
    """
    kind, _, rest = text.partition(":")
    example = "give --cluster local:workers=2,ps=2, or set TF_CONFIG on each machine"
    if kind != "local":
        raise ClusterUsageError(f"--cluster {text}: the only kind is `local`, got {kind!r}; {example}")
    counts, given = {"workers": 1, "ps": 1}, set[str]()
    for part in filter(None, rest.split(",")):
        name, _, number = part.partition("=")
        if name not in counts:
            raise ClusterUsageError(f"--cluster {text}: unknown {name!r}.{nearest(name, counts)} {example}")
        if not _NUMBER.fullmatch(number) or not 1 <= int(number) <= 64:
            raise ClusterUsageError(
                f"--cluster {text}: {name} is a number from 1 to 64, got {number!r}; {example}"
            )
        if name in given:
            raise ClusterUsageError(f"--cluster {text}: {name} is given twice; {example}")
        given.add(name)
        counts[name] = int(number)
    return LocalCluster(counts["workers"], counts["ps"])


def free_ports(count: int) -> list[int]:
    """Ports on this machine that nobody listens on now.

    Not from the range that Linux gives to outgoing connections, one of which might take a port before its process does.
    """
    found: list[int] = []
    # Not by the generator whose seed is the run's: runs at the same time would meet at the same ports.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", port))
            found.append(port)
    return found


def local_addresses(local: LocalCluster) -> Cluster:
    """The cluster of processes on this machine, seen from its chief."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(local.workers + local.ps + 1)]
    addresses = {
        CHIEF: (ports[0],),
        WORKER: tuple(ports[1 : 1 + local.workers]),
        PS: tuple(ports[1 + local.workers :]),
    }
    return Cluster(addresses, Role(CHIEF, 0, ports[0]))


def check_port(role: Role) -> None:
    """Whether a role can listen on its port on this machine.

    Raises:
        ClusterError: Somebody else does; role and address are named.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", role.port))
        except OSError as error:
            raise ClusterError(
                f"{role}: port {role.port} cannot be used: {error.strerror or error}. Another process listens on it, "
                f"perhaps left over from an earlier run; end it, or give {role.job} {role.index} another port"
            ) from error


def wait_for(
    roles: Sequence[Role],
    timeout: float,
    alive: Callable[[], None] = lambda: None,
    poll: float = 0.1,
    answers: Callable[[Role], bool] | None = None,
) -> None:
    """Waits until all roles can be called.

    Args:
        roles: The roles.
        timeout: Seconds to wait for all of them.
        alive: Called while waiting; raises when waiting is hopeless.
        poll: Seconds between attempts.
        answers: Whether a role is there; `serves` unless given.

    Raises:
        ClusterError: Some did not appear in time; they are named with their addresses.
    """
    answers = answers or serves
    deadline = time.monotonic() + timeout
    missing = list(roles)
    while missing:
        missing = [role for role in missing if not answers(role)]
        if not missing:
            return
        alive()
        if time.monotonic() > deadline:
            named = ", ".join(_absent(role) for role in missing)
            raise ClusterError(
                f"after {timeout:g} seconds there is no answer from {named}. Is the process running, with the same "
                f"{VARIABLE} but its own task, and can this machine reach the address? The time is "
                "`training.cluster.start_timeout`"
            )
        time.sleep(poll)


def _absent(role: Role) -> str:
    """A role that is missing; somebody who listens in its place, and is no server or hangs, is mentioned."""
    return (
        f"{role} (somebody listens there and does not answer as a server would)"
        if listens(role)
        else str(role)
    )


def listens(role: Role, timeout: float = 2.0) -> bool:
    """Whether somebody listens at the address of a role."""
    try:
        _call(role, timeout).close()
    except OSError:
        return False
    return True


def serves(role: Role, timeout: float = 2.0) -> bool:
    """Whether a gRPC server answers at the address of a role, and does not hang.

    Such a server answers the first bytes of HTTP/2 with a frame of settings (RFC 9113, section 3.4). The system accepts
    connections for a process that hangs, too.
    """
    try:
        with _call(role, timeout) as connection:
            connection.sendall(_PREFACE)
            answer = b""
            while len(answer) < _FRAME_HEADER:
                more = connection.recv(_FRAME_HEADER - len(answer))
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    return answer[3] == _SETTINGS


def host_and_port(role: Role) -> tuple[str, int]:
    """Both parts of a role's address."""
    host, _, port = role.address.rpartition(":")
    return host.strip("[]"), int(port)


def _call(role: Role, timeout: float) -> socket.socket:
    return socket.create_connection(host_and_port(role), timeout=timeout)
