"""Roles that stop answering are named, as long as training cannot do without them."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest
import tensorflow as tf

from easyrec.training.cluster.errors import lost, to_be_done_again
from easyrec.training.cluster.roles import Cluster, Role
from easyrec.training.cluster.watch import Watch

_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Server:
    """Answers as a gRPC server does, until it hangs: the system still takes connections then."""

    def __init__(self) -> None:
        self.hangs = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with ExitStack() as kept:
            while True:
                try:
                    connection = kept.enter_context(self._listening.accept()[0])
                except OSError:
                    return
                if not self.hangs:
                    connection.sendall(_SETTINGS)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def servers():
    made = {name: Server() for name in ("worker 0", "worker 1", "ps 0")}
    yield made
    for server in made.values():
        server.close()


def until_silent(watch: Watch, training: bool) -> str:
    deadline = time.monotonic() + 30
    while (said := watch.silent(training)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return said


def test_a_worker_may_hang_while_others_train_but_no_server_and_not_all_of_them(servers):
    addresses = {
        "worker": (servers["worker 0"].address, servers["worker 1"].address),
        "ps": (servers["ps 0"].address,),
    }
    cluster = Cluster(addresses, Role("chief", 0))
    with Watch(cluster, {"worker": 0.5, "ps": 0.25}) as watch:
        assert watch.silent(training=False) is None
        servers["worker 1"].hangs = True
        hanging = f"worker 1 at {servers['worker 1'].address} has not answered for 0.5 seconds"
        assert until_silent(watch, training=False) == hanging
        assert watch.silent(training=True) is None
        servers["worker 0"].hangs = True
        both = until_silent(watch, training=True)
        assert "worker 0" in both
        assert "worker 1" in both
        servers["worker 0"].hangs = False
        servers["ps 0"].hangs = True
        deadline = time.monotonic() + 30
        expected = f"ps 0 at {servers['ps 0'].address} has not answered for 0.25 seconds"
        while watch.silent(training=True) != expected:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        servers["ps 0"].hangs = False
        while watch.silent(training=True) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_who_was_lost_is_not_the_one_that_complains():
    text = "Failed copying input tensor from /job:chief/replica:0/task:0/device:CPU:0 to /job:ps/replica:0/task:1/"
    assert str(lost(RuntimeError(text))).startswith("ps 1 does not answer")


@pytest.mark.parametrize(
    ("error", "text", "again"),
    [
        ("CancelledError", "another split failed", True),
        (
            "UnavailableError",
            "error from remote target /job:worker/replica:0/task:0: Connection refused",
            True,
        ),
        ("AbortedError", "/job:worker/replica:0/task:1 has another incarnation", True),
        (
            "InvalidArgumentError",
            "/job:worker/..: Unable to find the relevant tensor remote_handle: Op ID: 7",
            True,
        ),
        ("InvalidArgumentError", "/job:worker/..: Input to reshape is a tensor with 3 values", False),
        (
            "UnavailableError",
            "/job:worker/..: error from remote target /job:ps/replica:0/task:0: reset",
            False,
        ),
        ("UnavailableError", "failed to connect to /job:ps/replica:0/task:0", False),
        ("DataLossError", "/job:worker/replica:0/task:0: corrupted record at 12", False),
    ],
)
def test_an_answer_that_is_lost_with_its_worker_costs_one_split_and_no_more(error, text, again):
    assert to_be_done_again(getattr(tf.errors, error)(None, None, text)) is again


def test_why_it_was_lost_is_said_in_few_words():
    text = (
        "Failed copying input tensor from /job:chief/replica:0/task:0/device:CPU:0 to /job:ps/replica:0/task:0/"
        "device:CPU:0 in order to run ResourceGather: failed to connect to all addresses; last error: UNKNOWN: ipv4"
    )
    assert str(lost(RuntimeError(text))) == "ps 0 does not answer (failed to connect to all addresses)"
