"""`easyrec predict`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from easyrec.cli.main import run
from easyrec.cli.predict import _columns


def test_predicts_files(films_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("user_id,movie_id,liked\n100,m1,1\n101,m2,0\n")
    output = tmp_path / "out.csv"
    arguments = ["predict", str(films_bundle), "--data", str(tmp_path / "rows.csv"), "--output", str(output)]
    assert run([*arguments, "--keep", "movie_id,liked=label"]) == 0
    assert capsys.readouterr().out == f"2 rows  {output}\n"
    frame = pd.read_csv(output)
    assert list(frame.columns) == ["movie_id", "label", "liked"]
    assert frame["liked"].between(0, 1).all()


def test_what_is_left_out_is_told(
    films_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("user_id,movie_id\n100,m1\n1,2,3\n")
    arguments = ["predict", str(films_bundle), "--data", str(tmp_path / "rows.csv")]
    arguments += ["--output", str(tmp_path / "out.csv")]
    assert run(arguments) == 2
    assert run([*arguments, "--on-error", "skip"]) == 0
    assert "left out 1 rows" in capsys.readouterr().err


def test_neither_run_nor_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(tmp_path), "--data", "x.csv", "--output", "y.csv"]) == 2
    assert "is neither a bundle" in capsys.readouterr().err


def test_columns_to_keep() -> None:
    assert _columns(" a, b = c,,") == {"a": "a", "b": "c"}
