"""The outer loop on a small network with dropout and batch normalisation."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easyrec.errors import CheckpointError, TrainingError
from easyrec.training.callbacks import Callback
from easyrec.training.state import training_state
from easyrec.training.step import TrainStep
from easyrec.training.trainer import Trainer
from tests.easyrec.training.small_pipeline import ROWS, SCHEMA, MemoryStream, network, pipeline, rows


class Recorder(Callback):
    def __init__(self, act=None):
        self.events: list[tuple] = []
        self.act = act

    def __getattribute__(self, name):
        if name.startswith("on_"):

            def record(*arguments):
                self.events.append((name, *arguments))
                if self.act:
                    self.act(name, *arguments)

            return record
        return super().__getattribute__(name)

    def of(self, name):
        return [event for event in self.events if event[0] == name]


def fit(directory, *, resume=False, stream=None, model="deepfm", evaluate=None, callbacks=(), **training):
    config = pipeline(model, **training)
    trainer = Trainer(
        network(config),
        config.training,
        directory,
        rows=ROWS,
        schema=SCHEMA,
        evaluate=evaluate,
        callbacks=callbacks,
    )
    return trainer, trainer.fit(stream or MemoryStream(rows()), resume=resume)


def arrays(trainer) -> dict[str, np.ndarray]:
    return {
        variable.name: np.concatenate([np.atleast_1d(part) for part in variable.read()])
        for variable in training_state(trainer.step)
    }


def assert_same(left, right):
    left, right = arrays(left), arrays(right)
    assert left.keys() == right.keys()
    different = [name for name in left if not np.array_equal(left[name], right[name])]
    assert not different


def log(directory: Path, event: str) -> list[dict]:
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole"))[0]


def test_training_lowers_the_loss_and_reports(tmp_path):
    recorder = Recorder()
    trainer, result = fit(
        tmp_path,
        epochs=20,
        callbacks=[recorder],
        optimizer={"dense": {"type": "adam", "learning_rate": 0.01}},
    )
    losses = [line["loss"] for line in log(tmp_path, "train")]
    assert np.mean(losses[-7:]) < 0.6 * np.mean(losses[:7])
    assert (result.reason, result.steps, result.epochs, result.examples) == ("completed", 140, 20, 20 * ROWS)
    assert trainer.total_steps == 140
    assert result.examples_per_second > 0
    assert 0 <= result.wait_share <= 1
    assert result.peak_memory_bytes > 2**20
    line = log(tmp_path, "train")[0]
    assert line["step"] == 2
    assert line["liked"] == line["loss"]
    assert line["learning_rate/dense"] == 0.01
    assert {
        "examples_per_second",
        "wait_share",
        "memory_mib",
        "learning_rate/embedding",
        "time",
    } <= line.keys()
    info = recorder.of("on_step")[-1][1]
    assert (info.total_steps, info.epochs) == (140, 20)
    assert recorder.of("on_train_end") == [("on_train_end", "completed")]


def test_the_same_seed_gives_the_same_run_twice(tmp_path, uninterrupted):
    assert_same(fit(tmp_path)[0], uninterrupted)


def test_another_seed_gives_another_run(tmp_path, uninterrupted):
    other = arrays(fit(tmp_path, seed=4)[0])
    name = next(name for name in other if name.startswith("embedding/"))
    assert not np.array_equal(other[name], arrays(uninterrupted)[name])


@pytest.mark.parametrize("stop", [3, 7, 9], ids=["inside an epoch", "between epochs", "in the second epoch"])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, uninterrupted, stop):
    _, first = fit(tmp_path, max_steps=stop)
    assert (first.reason, first.steps) == ("max_steps", stop)
    trainer, result = fit(tmp_path, resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 14, 2 * ROWS)
    assert_same(trainer, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_to_go_on_from(tmp_path, uninterrupted, number):
    before = signal.getsignal(number)

    def interrupt(name, *arguments):
        if name == "on_first_step":
            os.kill(os.getpid(), number)

    _, result = fit(tmp_path, callbacks=[Recorder(interrupt)])
    assert (result.reason, result.steps) == ("interrupted", 1)
    assert signal.getsignal(number) is before
    trainer, _ = fit(tmp_path, resume=True)
    assert_same(trainer, uninterrupted)


def test_resuming_passes_over_a_damaged_checkpoint(tmp_path, uninterrupted):
    fit(tmp_path, max_steps=4, checkpoints={"every_steps": 2})
    newest = max((tmp_path / "checkpoints").iterdir())
    victim = next(newest.glob("embedding__user.npy"))
    victim.write_bytes(victim.read_bytes()[:-4])
    trainer, _ = fit(tmp_path, resume=True)
    assert log(tmp_path, "start")[-1]["step"] == 2
    assert_same(trainer, uninterrupted)


def test_resuming_when_every_checkpoint_is_damaged_is_an_error(tmp_path):
    fit(tmp_path, max_steps=2)
    for victim in tmp_path.glob("checkpoints/*/embedding__user.npy"):
        victim.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"embedding__user\.npy: its content has changed"):
        fit(tmp_path, resume=True)


def test_resuming_with_another_seed_or_model_is_refused(tmp_path):
    fit(tmp_path, max_steps=2)
    with pytest.raises(CheckpointError, match="seed 3, the configuration says 4"):
        fit(tmp_path, resume=True, seed=4)
    with pytest.raises(CheckpointError, match="of another model"):
        fit(tmp_path, resume=True, model="dcn_v2")


def test_resuming_nothing_starts_at_the_beginning(tmp_path, uninterrupted):
    assert_same(fit(tmp_path, resume=True)[0], uninterrupted)


def test_resuming_a_finished_run_does_nothing(tmp_path, uninterrupted):
    fit(tmp_path)
    trainer, result = fit(tmp_path, resume=True)
    assert (result.reason, result.steps) == ("completed", 14)
    assert_same(trainer, uninterrupted)


@pytest.fixture
def no_arithmetic(monkeypatch):
    """Steps that compute nothing, for tests of the loop alone."""

    def step(self, batch, lookup, factor):
        return {"loss": 0.5, "liked": 0.5}

    monkeypatch.setattr(TrainStep, "__call__", step)


class Scripted:
    """Evaluations that give the values of a list, one after the other."""

    def __init__(self, *values):
        self.values = list(values)

    def __call__(self):
        return {"liked/auc": self.values.pop(0), "liked/log_loss": 0.5}


def test_evaluations_come_every_so_many_steps_and_once_at_the_end_of_an_epoch(tmp_path, no_arithmetic):
    recorder = Recorder()
    _, result = fit(
        tmp_path, evaluate=Scripted(*np.linspace(0.5, 0.6, 4)), evaluate_every=5, callbacks=[recorder]
    )
    assert [entry["step"] for entry in result.evaluations] == [5, 7, 10, 14]
    assert [line["step"] for line in log(tmp_path, "evaluation")] == [5, 7, 10, 14]
    assert log(tmp_path, "evaluation")[0]["liked/log_loss"] == 0.5
    assert all(event[3] for event in recorder.of("on_evaluation"))
    assert result.monitor == "liked/auc"


def test_an_evaluation_that_falls_on_the_end_of_an_epoch_is_made_once(tmp_path, no_arithmetic):
    _, result = fit(tmp_path, evaluate=Scripted(0.5, 0.6), evaluate_every=7)
    assert [entry["step"] for entry in result.evaluations] == [7, 14]


def test_the_best_checkpoint_outlives_later_ones(tmp_path, no_arithmetic):
    trainer, result = fit(
        tmp_path, epochs=5, evaluate=Scripted(0.5, 0.9, 0.6, 0.6, 0.6), checkpoints={"keep": 1}
    )
    assert result.best_step == 14
    assert [checkpoint.step for checkpoint in trainer.checkpoints.all()] == [14, 35]
    assert trainer.checkpoints.best().progress.metrics == {"liked/auc": 0.9, "liked/log_loss": 0.5}


def test_an_improvement_inside_an_epoch_is_saved_at_once(tmp_path, no_arithmetic):
    trainer, result = fit(tmp_path, epochs=1, evaluate=Scripted(0.9, 0.5, 0.4), evaluate_every=3)
    assert result.best_step == 3
    assert [checkpoint.step for checkpoint in trainer.checkpoints.all()] == [3, 7]


def test_training_stops_early_also_after_a_restart(tmp_path, no_arithmetic):
    early = {"early_stopping": {"patience": 2}}
    fit(tmp_path, epochs=2, evaluate=Scripted(0.9, 0.8), **early)
    _, result = fit(tmp_path, epochs=9, evaluate=Scripted(0.7), resume=True, **early)
    assert (result.reason, result.epochs, result.best_step) == ("early_stopping", 3, 7)
    _, result = fit(tmp_path, epochs=9, evaluate=Scripted(), resume=True, **early)
    assert (result.reason, result.epochs) == ("early_stopping", 3)


def test_an_unknown_monitored_metric_names_the_nearest(tmp_path, no_arithmetic):
    with pytest.raises(TrainingError, match=r"Did you mean 'liked/auc'"):
        fit(tmp_path, evaluate=Scripted(0.5), checkpoints={"metric": "liked/acu"})


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("numbers", np.inf, r"features\.price: has values that are not finite"),
        ("numbers", 1e38, r"features\.price: has values up to 1e\+38; normalise"),
        ("label/liked", np.nan, r"label/liked: 1 of 32 values are not finite"),
    ],
)
def test_a_loss_that_is_not_a_number_names_step_and_feature(tmp_path, key, value, named):
    data = rows()
    dense = {name: values.copy() for name, values in data.dense.items()}
    order = np.random.default_rng(0).permutation(ROWS)
    dense[key][order[40], ...] = value if key != "numbers" else [0.0, value]
    with pytest.raises(TrainingError, match=rf"(?s)at step [234] .*{named}.*clip_norm"):
        fit(tmp_path, stream=MemoryStream(replace(data, dense=dense)))
    assert not (tmp_path / "checkpoints").exists()


def test_no_rows_is_an_error(tmp_path, no_arithmetic):
    with pytest.raises(TrainingError, match="no rows to train on"):
        fit(tmp_path, stream=MemoryStream(rows().slice(0, 0)))


def test_an_error_of_the_input_reaches_the_caller(tmp_path, no_arithmetic):
    class Broken(MemoryStream):
        def batches(self, epoch, skip=0):
            yield from list(super().batches(epoch, skip))[:2]
            raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        fit(tmp_path, stream=Broken(rows()))


def test_tensorboard_gets_the_numbers_of_the_log(tmp_path, no_arithmetic):
    fit(tmp_path, epochs=1, tensorboard=True, evaluate=Scripted(0.5))
    content = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard").rglob("events*"))
    assert b"train/loss" in content
    assert b"evaluation/liked/auc" in content


@pytest.mark.parametrize(
    "training",
    [
        {
            "optimizer": {
                "embedding": "lazy_adam",
                "dense": "adamw",
                "clip_norm": 0.1,
                "clip_embedding_norm": 0.01,
                "schedule": {"type": "exponential", "warmup_steps": 3, "decay_steps": 5, "decay_rate": 0.5},
            }
        },
        {"optimizer": {"embedding": "sgd", "dense": {"type": "sgd", "options": {"momentum": 0.9}}}},
        {"jit_compile": True},
    ],
    ids=["adam, clipping, schedule", "sgd", "xla"],
)
def test_every_option_trains_and_resumes(tmp_path, training):
    whole, _ = fit(tmp_path / "whole", epochs=1, **training)
    fit(tmp_path / "parts", epochs=1, max_steps=4, **training)
    parts, _ = fit(tmp_path / "parts", epochs=1, resume=True, **training)
    assert_same(whole, parts)
    assert all(np.isfinite(values).all() for values in arrays(parts).values())
