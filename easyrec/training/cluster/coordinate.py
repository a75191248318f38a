"""The coordinator: a process that connects to workers and servers, hands out splits, and writes checkpoints.

It is a child of the process that runs `easyrec train`, because a TensorFlow program that has lost a parameter server
cannot go on; it ends, and the parent starts another one from the last checkpoint. The two talk in JSON lines:

    to the parent     {"event": "call" | "evaluate" | "hanging" | "result" | "error" | "lost" | "beat", ...}
    from the parent   {"interrupt": "SIGINT"}, {"metrics": {...}} or {"failed": "..."} after an evaluation
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.prepared.shards import ShardSet, open_shards
from easyrec.errors import CheckpointError, DataError, EasyRecError, TrainingError
from easyrec.features.encoder import Encoder
from easyrec.models.build import network_of
from easyrec.run import RunFolder
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore, Progress
from easyrec.training.cluster.connection import Connection, check_shards, connect, cut_off
from easyrec.training.cluster.errors import ServerLostError, lost
from easyrec.training.cluster.load import ServerLoads
from easyrec.training.cluster.prediction import SplitPredictor
from easyrec.training.cluster.roles import VARIABLE, ClusterError, parse_tf_config
from easyrec.training.cluster.rounds import SynchronousTrainer
from easyrec.training.cluster.server import end_with_parent
from easyrec.training.cluster.trainer import ClusterTrainer
from easyrec.training.state import network_state
from easyrec.training.warm_start import warm_start

EVENTS = "EASYREC_EVENTS_FD"
LOST = 75
"""Exit code after a parameter server has been lost (EX_TEMPFAIL of sysexits.h: try again)."""
_BEAT_SECONDS = 1.0
_KINDS: dict[str, type[EasyRecError]] = {
    kind.__name__: kind for kind in (ClusterError, TrainingError, DataError, CheckpointError, EasyRecError)
}


def error_of(kind: str, message: str) -> EasyRecError:
    """The error that a coordinator reported, to be raised in its parent."""
    return _KINDS.get(kind, TrainingError)(message)


class _Parent(Callback):
    """The other end: callbacks go there, answers and interrupts come from there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.interrupted: str | None = None
        self.trainer: ClusterTrainer | None = None
        for target in (self._listen, self._beat):
            threading.Thread(target=target, name="easyrec-parent", daemon=True).start()

    def send(self, event: str, **values: Any) -> None:
        """Sends an event."""
        line = json.dumps({"event": event, **values}, default=_plain)
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()

    def ask(self, event: str, **values: Any) -> dict[str, Any]:
        """Sends an event and waits for the answer."""
        self.send(event, **values)
        return self.answers.get()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *arguments: self.send("call", method=name, arguments=arguments)
        return super().__getattribute__(name)

    def _beat(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # one of the two has ended
            while True:
                self.send("beat")
                time.sleep(_BEAT_SECONDS)

    def _listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "interrupt" in message:
                self.interrupted = message["interrupt"]
                if self.trainer is not None:
                    self.trainer.interrupt(message["interrupt"])
            else:
                self.answers.put(message)
        os._exit(1)  # the parent has ended


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def main() -> int:
    """Trains what the job, a JSON file named as the first argument, describes."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    end_with_parent(job["parent"], watch=False)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it warns of tracing outside of the coordinator
    faulthandler.register(signal.SIGUSR1)  # where it is, for someone who wonders why nothing goes on
    with os.fdopen(int(os.environ[EVENTS]), "w", encoding="utf-8") as stream:
        parent = _Parent(stream)
        try:
            result = _train(job, parent)
            parent.send("result", **result)
        except (ServerLostError, tf.errors.OpError) as error:
            parent.send("lost", message=str(error if isinstance(error, ServerLostError) else lost(error)))
            return LOST
        except EasyRecError as error:
            parent.send("error", kind=type(error).__name__, message=str(error))
            return error.exit_code
        except OSError as error:
            told = (
                f"{error.filename or job['run']}: cannot be written or read: {error.strerror or error}. Checkpoints "
                "that are there are whole; make room or give permission, and go on with --resume"
            )
            parent.send("error", kind=TrainingError.__name__, message=told)
            return TrainingError.exit_code
    return 0


def _train(job: Mapping[str, Any], parent: _Parent) -> dict[str, Any]:
    run = RunFolder(Path(job["run"]))
    config = run.config()
    cluster = parse_tf_config(os.environ.get(VARIABLE))
    shards = open_shards(job["shards"])
    if cluster is None or shards is None:
        raise TrainingError(f"{VARIABLE} or the shards in {job['shards']} are gone")
    if shards.fingerprint != job["fingerprint"]:
        raise DataError(
            f"{job['shards']}: holds other shards than the chief prepared ({shards.fingerprint} there, "
            f"{job['fingerprint']} expected)"
        )
    encoder = Encoder.load(config, run.features)
    connection = connect(
        cluster, config.training.cluster.start_timeout, warn=lambda text: parent.on_note(text)
    )
    check_shards(cluster, shards)
    with connection.strategy.scope():
        network = network_of(config, encoder, job["label_moments"], shards=len(cluster.roles("ps")))
        if job["warm_start"] and not (job["resume"] and CheckpointStore(run.checkpoints).all()):
            warm_start(network, encoder, str(config.training.warm_start))
        trainer = _trainer(job, parent, config, run, shards, connection, network)
    parent.trainer = trainer
    if parent.interrupted is not None:  # while it connected
        trainer.interrupt(parent.interrupted)
    result = trainer.fit(shards, resume=job["resume"])  # type: ignore[arg-type]
    return asdict(replace(result, evaluations=[]))  # the chief has them


def _trainer(
    job: Mapping[str, Any],
    parent: _Parent,
    config: PipelineConfig,
    run: RunFolder,
    shards: ShardSet,
    connection: Connection,
    network: Any,
) -> ClusterTrainer:
    def on_hang(files: list[str]) -> None:
        silent = cut_off(connection.cluster)
        parent.send("hanging", splits=files, silent=[str(role) for role in silent])

    predictor = None
    if job["eval_shards"] is not None:
        eval_shards = open_shards(job["eval_shards"])
        if eval_shards is not None:
            predictor = SplitPredictor(
                connection, network, eval_shards, config.training.cluster.split_timeout, on_hang
            )

    def evaluate() -> dict[str, float]:
        folder = run.directory / "cluster" / "evaluation"
        if predictor is not None:
            answer = parent.ask("evaluate", predictions=str(predictor.write(folder, job["eval_rows"])))
        else:
            store = CheckpointStore(folder, keep=1)
            saved = store.save(network_state(network), Progress(step=trainer.progress.step))
            answer = parent.ask("evaluate", weights=str(saved.path))
        if "failed" in answer:
            raise TrainingError(answer["failed"])
        return {name: float("nan") if value is None else value for name, value in answer["metrics"].items()}

    kind = SynchronousTrainer if config.training.cluster.mode == "synchronous" else ClusterTrainer
    trainer = kind(
        network,
        config.training,
        run.directory,
        shards=shards,
        coordinator=connection.coordinator,
        strategy=connection.strategy,
        workers=len(connection.cluster.roles("worker")),
        shuffle=config.data.shuffle,
        skip_damaged=config.data.on_error == "skip",
        on_hang=on_hang,
        servers=ServerLoads(connection.cluster),
        evaluate=evaluate if job["evaluates"] else None,
        schema=None,
        callbacks=[parent],
    )
    return trainer


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a worker that cannot be reached must not hold the process
