"""`easyrec demo` when it is interrupted; that it ends well is seen where it is shown."""

import pytest

from easyrec.cli.main import run
from easyrec.demo import films
from easyrec.run import RunFolder
from easyrec.training.report import TrainingResult
from easyrec.workflow import Measured, Run


@pytest.mark.parametrize("during", ["training", "anything else"])
def test_an_interruption_says_how_to_go_on(during, monkeypatch, tmp_path, capsys):
    def train(config, **_options):
        if during == "training":  # Ctrl-C and SIGTERM let it finish its step and leave a checkpoint
            result = TrainingResult("interrupted", 3, 0, 9, 1.0, 9.0, 0.0, 0)
            return Run(RunFolder(tmp_path), result, Measured())
        raise KeyboardInterrupt

    monkeypatch.setattr(films, "train", train)
    assert run(["demo", "--folder", str(tmp_path / "demo")]) == 130
    error = capsys.readouterr().err
    assert "interrupted; the same command begins again" in error
    assert "bundle" not in error
