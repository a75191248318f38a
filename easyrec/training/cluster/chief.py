"""The chief's side of training on a cluster: it starts the coordinator, starts it again after a loss, and measures.

    easyrec train --cluster local:workers=2,ps=2
      ├── worker 0, worker 1, ps 0, ps 1     TensorFlow servers (`server`), started again when they are lost
      └── coordinator                        connects to them and trains (`coordinate`), from the last checkpoint after
                                             a parameter server was lost

Under `TF_CONFIG` the servers run elsewhere, started by whoever runs the machines; the rest is the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from easyrec.config.training import ClusterConfig
from easyrec.errors import EasyRecError, TrainingError
from easyrec.startup import worth_showing
from easyrec.training.callbacks import Callback, ClusterLoad, StepInfo
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.cluster.coordinate import EVENTS, LOST, error_of
from easyrec.training.cluster.processes import LocalProcesses, end, forward, how_it_ended, start
from easyrec.training.cluster.roles import (
    PS,
    VARIABLE,
    WORKER,
    Cluster,
    LocalCluster,
    local_addresses,
    wait_for,
)
from easyrec.training.cluster.watch import Watch
from easyrec.training.interrupts import GracefulInterrupt
from easyrec.training.report import TrainingResult

_POLL_SECONDS = 0.2
_LONGEST_SILENCE = 60.0
_LOSSES_IN_A_ROW = 5

Tell = Callable[[str], None]


@dataclass(frozen=True)
class ClusterJob:
    """What a cluster is to train.

    Attributes:
        run: The run's folder; configuration and fitted features lie there.
        shards: Folder of the training shards.
        fingerprint: Theirs.
        eval_shards: Folder of the held-out shards that workers predict, or None.
        eval_rows: Evaluate on about so many rows, or None for all.
        label_moments: As for `build_network`.
        warm_start: Whether training starts from the weights that `training.warm_start` names.
    """

    run: Path
    shards: str
    fingerprint: str
    eval_shards: str | None = None
    eval_rows: int | None = None
    label_moments: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    warm_start: bool = False


@dataclass(frozen=True)
class Evaluators:
    """How the chief measures.

    Attributes:
        predictions: Metrics from a file of predictions that workers made.
        weights: Metrics from a checkpoint folder of weights.
    """

    predictions: Callable[[Path], dict[str, float]]
    weights: Callable[[Path], dict[str, float]]


def train_on_cluster(
    job: ClusterJob,
    cluster: Cluster | LocalCluster,
    *,
    config: ClusterConfig,
    resume: bool = False,
    evaluators: Evaluators | None = None,
    callbacks: Sequence[Callback] = (),
    tell: Tell = lambda text: None,
    on_processes: Callable[[LocalProcesses], None] = lambda processes: None,
) -> TrainingResult:
    """Trains on a cluster to the end, or to a signal.

    Args:
        job: What to train.
        cluster: The cluster whose chief this process is, or how many processes to start here.
        config: Its time-outs.
        resume: Go on from the latest checkpoint, if there is one.
        evaluators: Measure between epochs; nothing is measured unless given.
        callbacks: Follow the training.
        tell: Called with lines for whoever watches: what was lost and started again, what processes print.
        on_processes: Given the processes of a cluster on this machine, once they are started.

    Raises:
        ClusterError: A role does not appear, or ends again and again.
        TrainingError: Training cannot go on.
    """
    logs = job.run / "cluster"
    logs.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        processes = None
        if isinstance(cluster, LocalCluster):
            addresses = local_addresses(cluster)
            processes = stack.enter_context(LocalProcesses(addresses, logs, tell))
            on_processes(processes)
            wait_for(addresses.servers, config.start_timeout, processes.check)
        else:
            addresses = cluster
            wait_for(addresses.servers, config.start_timeout)
        chief = _Chief(job, addresses, processes, evaluators, callbacks, tell, config)
        with GracefulInterrupt() as interrupt:
            return chief.train(resume, interrupt)


class _Chief:
    def __init__(
        self,
        job: ClusterJob,
        cluster: Cluster,
        processes: LocalProcesses | None,
        evaluators: Evaluators | None,
        callbacks: Sequence[Callback],
        tell: Tell,
        config: ClusterConfig,
    ) -> None:
        self._job = job
        self._cluster = cluster
        self._processes = processes
        self._evaluators = evaluators
        self._callbacks = callbacks
        self._tell = tell
        self._start_timeout = config.start_timeout
        self._patience = {PS: config.split_timeout or _LONGEST_SILENCE, WORKER: config.start_timeout}
        self._training = False
        self._step = 0
        self._result: dict[str, Any] | None = None
        self._lost: str | None = None
        self._evaluations: list[dict[str, Any]] = []

    def train(self, resume: bool, interrupt: GracefulInterrupt) -> TrainingResult:
        """Runs coordinators until one of them is done."""
        losses, saved = 0, self._saved_step()
        while True:
            code = self._coordinate(resume, interrupt)
            if self._result is not None:
                names = {one.name for one in fields(TrainingResult)}
                result = {name: value for name, value in self._result.items() if name in names}
                return TrainingResult(**{**result, "evaluations": self._evaluations})
            now = self._saved_step()
            losses, saved = (losses + 1 if now == saved else 1), now
            # An exception that nobody foresaw is raised again and again; what is lost may come back.
            if losses > (_LOSSES_IN_A_ROW if code == LOST or code < 0 else 1):
                raise TrainingError(
                    f"training was lost {losses} times without a checkpoint in between, last: {self._lost or code}. "
                    f"The logs are in {self._job.run / 'cluster'}"
                )
            self._report_loss(now, code)
            self._evaluations = [one for one in self._evaluations if one["step"] <= now]
            resume = True
            if self._processes is not None:
                self._processes.check()
                self._processes.begin_anew()
            wait_for(
                self._cluster.servers,
                self._start_timeout,
                self._processes.check if self._processes is not None else lambda: None,
            )

    def _saved_step(self) -> int:
        latest = CheckpointStore(self._job.run / "checkpoints").latest()
        return 0 if latest is None else latest.step

    def _report_loss(self, saved: int, code: int) -> None:
        why = self._lost or "no reason is known"
        if code != LOST:
            why = f"the coordinator {how_it_ended(code)} ({why})"
        gone = max(0, self._step - saved)
        text = (
            f"training broke off at step {self._step}: {why}. It goes on from the checkpoint of step {saved}; "
            f"{gone} steps are done again"
        )
        self._tell(text)
        for callback in self._callbacks:
            callback.on_note(text)
        with (self._job.run / "log.jsonl").open("a", encoding="utf-8") as log:
            line = {"event": "lost", "step": self._step, "time": time.time(), "from_step": saved}
            line |= {"steps_again": gone, "why": why}
            log.write(json.dumps(line) + "\n")

    def _coordinate(self, resume: bool, interrupt: GracefulInterrupt) -> int:
        """Runs one coordinator to its end; gives its exit code."""
        self._result = self._lost = None
        self._training = False
        logs = self._job.run / "cluster"
        described = logs / "job.json"
        described.write_text(
            json.dumps(
                {
                    **{key: value for key, value in vars(self._job).items() if key != "run"},
                    "run": str(self._job.run),
                    "resume": resume,
                    "evaluates": self._evaluators is not None,
                    "parent": os.getpid(),
                }
            ),
            encoding="utf-8",
        )
        reading, writing = os.pipe()
        process = start(
            "easyrec.training.cluster.coordinate",
            [str(described)],
            {VARIABLE: self._cluster.tf_config(self._cluster.task), EVENTS: str(writing)},
            pass_fds=(writing,),
        )
        os.close(writing)
        try:
            if process.stdout is not None:
                forward(process.stdout, "", logs / "coordinator.log", None)
            with Watch(self._cluster, self._patience) as watch:
                for message in _messages(reading, partial(self._while_waiting, process, interrupt, watch)):
                    self._receive(process, message)
            return self._explained(process.wait(), logs / "coordinator.log")
        finally:
            os.close(reading)
            end(process)

    def _explained(self, code: int, log: Path) -> int:
        """The exit code of a coordinator; its last words are kept where nobody knows why it ended."""
        if self._lost is not None:
            return LOST
        if code != 0 and self._result is None:
            self._lost = _last_words(log)
        return code

    def _while_waiting(
        self,
        process: subprocess.Popen[bytes],
        interrupt: GracefulInterrupt,
        watch: Watch,
        quiet: float,
    ) -> None:
        if self._processes is not None:
            self._processes.check()
        silent = watch.silent(self._training)
        if silent is None and quiet > _LONGEST_SILENCE:
            silent = f"the coordinator gave no sign of life for {_LONGEST_SILENCE:.0f} seconds"
        if silent is not None and self._lost is None and self._result is None:
            self._lost = silent
            process.kill()  # whatever waits there would wait on
        if interrupt.requested is not None and not getattr(process, "told", False):
            process.told = True  # type: ignore[attr-defined]
            _send(process, {"interrupt": interrupt.requested})

    def _receive(self, process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        match message.pop("event"):
            case "call":
                self._call(message["method"], message["arguments"])
            case "evaluate":
                _send(process, self._measure(message))
            case "hanging":
                self._hanging(message["splits"], message["silent"])
            case "lost":
                self._lost = message["message"]
            case "result":
                self._result = message
            case "error":
                raise error_of(message["kind"], message["message"])

    def _call(self, method: str, arguments: list[Any]) -> None:
        if method == "on_step":
            load = ClusterLoad(**arguments[0].pop("cluster"))
            info = StepInfo(**arguments[0], cluster=load)
            self._step, arguments = info.step, [info]
        elif method == "on_train_start":
            self._training = True
        elif method == "on_checkpoint":
            arguments = [arguments[0], Path(arguments[1])]
        elif method == "on_evaluation":
            self._evaluations.append({"step": arguments[0], "metrics": arguments[1]})
        elif method == "on_note":
            self._tell(arguments[0])
        for callback in self._callbacks:
            getattr(callback, method)(*arguments)

    def _measure(self, message: Mapping[str, str]) -> dict[str, Any]:
        if self._evaluators is None:
            return {"metrics": {}}
        try:
            if "predictions" in message:
                return {"metrics": self._evaluators.predictions(Path(message["predictions"]))}
            return {"metrics": self._evaluators.weights(Path(message["weights"]))}
        except EasyRecError as error:
            return {"failed": str(error)}

    def _hanging(self, splits: Sequence[str], silent: Sequence[str]) -> None:
        self._tell(f"no answer for a long time on {', '.join(splits)}")
        for role in silent:
            self._tell(
                f"{role} does not answer; its split goes to another worker, and it joins when it answers again"
            )
        if self._processes is not None:
            for stuck in self._processes.end_stuck():
                self._tell(f"{stuck} does nothing; it is ended, and its split goes to another worker")


def _last_words(log: Path) -> str:
    lines = [line for line in worth_showing(log.read_text(errors="replace").splitlines()) if line.strip()]
    return lines[-1][:300] if lines else "without a word"


def _send(process: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(OSError):  # it has just ended, which is noticed elsewhere
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def _messages(descriptor: int, idle: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    """The JSON lines that come through a pipe until it is closed.

    `idle` is called all the while, with the seconds in which nothing has come.
    """
    rest, quiet = b"", 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            idle(quiet)
            if not selector.select(_POLL_SECONDS):
                quiet += _POLL_SECONDS
                continue
            quiet = 0.0
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield json.loads(line)
