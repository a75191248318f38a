"""Who of a cluster answers: asked by the process that started the coordinator, for TensorFlow waits for whoever hangs.

What waits for a process that hangs, or that the network hides, may hold up every thread of the coordinator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

from easyrec.training.cluster.roles import PS, WORKER, Cluster, Role, serves

_ASK_SECONDS = 1.0


class Watch:
    """Asks workers and servers all the while whether they are there; used as a context.

    Args:
        cluster: Whose.
        patience: Seconds without an answer after which a role counts as lost, by job.
    """

    def __init__(self, cluster: Cluster, patience: Mapping[str, float]) -> None:
        self._cluster = cluster
        self._patience = patience
        self._since: dict[Role, float] = {}
        self._closing = threading.Event()

    def __enter__(self) -> Watch:
        for role in self._cluster.servers:
            threading.Thread(target=self._ask, args=(role,), name="easyrec-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()

    def silent(self, training: bool) -> str | None:
        """Who has been silent for too long, in words, or None.

        Args:
            training: Whether the cluster trains. Every server must answer, and one worker at least: the splits of a
                worker that does not go to others. While a cluster is connected, all must.
        """
        now = time.monotonic()
        late = [role for role, since in list(self._since.items()) if now - since > self._patience[role.job]]
        if training and sum(role.job == WORKER for role in late) < len(self._cluster.roles(WORKER)):
            late = [role for role in late if role.job == PS]
        said = [f"{role} has not answered for {self._patience[role.job]:g} seconds" for role in late]
        return ", ".join(said) or None

    def _ask(self, role: Role) -> None:
        while not self._closing.wait(_ASK_SECONDS):
            if serves(role):
                self._since.pop(role, None)
            else:
                self._since.setdefault(role, time.monotonic())
