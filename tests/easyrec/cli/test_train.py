import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from easyrec.cli.main import run
from easyrec.cli.progress import TrainingProgress
from easyrec.training.callbacks import ClusterLoad, StepInfo


def info(step: int, total: int | None = 100) -> StepInfo:
    return StepInfo(step, total, 0, 2, step * 32, 12_345.6, 0.25, 300 * 2**20, 0.51234)


def shown(terminal: bool, monkeypatch: pytest.MonkeyPatch, total: int | None = 100) -> str:
    """What a training of three steps, 11 seconds apart, shows."""
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr("easyrec.cli.progress.time.monotonic", lambda: float(next(clock)))
    text = io.StringIO()
    progress = TrainingProgress(Console(file=text, force_terminal=terminal, width=160, highlight=False))
    progress.on_train_start(total, 0)
    for step in (1, 2, 3):
        progress.on_step(info(step, total))
    progress.on_evaluation(3, {"liked/auc": 0.75, "liked/log_loss": 0.5}, improved=True)
    progress.on_checkpoint(3, Path("somewhere"))
    progress.on_train_end("completed")
    progress.close()
    return text.getvalue()


def test_plain_lines_where_no_terminal_watches(monkeypatch):
    lines = shown(False, monkeypatch).splitlines()
    assert lines[0] == "epoch 1/2  step 1/100  loss 0.5123  12,346 examples/s  input wait 25%  300 MiB"
    assert lines[-1] == "step 3  liked/auc 0.7500  liked/log_loss 0.5000  (best so far)"
    assert "\x1b" not in "".join(lines)


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.undo()
    text = io.StringIO()
    progress = TrainingProgress(Console(file=text, force_terminal=True, width=160))
    progress.on_train_start(None, 0)
    progress.on_step(info(50))
    progress._bar.refresh()
    progress.on_train_end("completed")
    progress.close()
    assert "epoch 1/2" in text.getvalue()
    assert "50%" in text.getvalue()
    assert "loss 0.5123" in text.getvalue()


@pytest.mark.parametrize(
    ("workers", "expected"), [([5100.4, 4900.0], "5,100 | 4,900"), (range(4000, 4064), "4,000 to 4,063")]
)
def test_a_cluster_shows_who_does_how_much(workers, expected, monkeypatch):
    load = ClusterLoad(
        3, 19, {f"worker:{i}": rate for i, rate in enumerate(workers)}, {"ps:0": 0.34}, 25 * 2**19
    )
    monkeypatch.setattr("easyrec.cli.progress.time.monotonic", iter([0.0, 11.0, 11.0]).__next__)
    text = io.StringIO()
    progress = TrainingProgress(Console(file=text, width=400))
    progress.on_train_start(100, 0)
    progress.on_step(replace(info(1), cluster=load))
    assert (
        text.getvalue()
        .strip()
        .endswith(
            f"workers idle 25%  splits 3/19  workers {expected} examples/s  servers 0.3 CPUs  12.5 MiB moved"
        )
    )


def test_training_that_begins_again_after_a_loss_has_one_bar():
    progress = TrainingProgress(Console(file=io.StringIO(), force_terminal=True, width=160))
    progress.on_train_start(10, 0)
    before = progress._bar
    progress.on_train_start(10, 4)
    assert not before.live.is_started
    assert progress._bar.live.is_started
    progress.close()


def test_the_number_of_steps_may_be_unknown(monkeypatch):
    assert "step 1  loss" in shown(False, monkeypatch, total=None)


def test_lines_come_ten_seconds_apart(monkeypatch):
    monkeypatch.setattr("easyrec.cli.progress.time.monotonic", lambda: 5.0)
    text = io.StringIO()
    progress = TrainingProgress(Console(file=text))
    progress.on_train_start(10, 0)
    progress.on_step(info(1))
    assert text.getvalue() == ""


def test_a_configuration_that_is_not_there_is_named_without_starting_tensorflow(capsys, tmp_path):
    (tmp_path / "films.yaml").write_text("")
    assert run(["train", str(tmp_path / "film.yaml")]) == 2
    error = capsys.readouterr().err
    assert "film.yaml" in error
    assert "films.yaml" in error
