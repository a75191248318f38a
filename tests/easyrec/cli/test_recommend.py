"""`easyrec recommend`."""

from __future__ import annotations

from pathlib import Path

import pytest

from easyrec.cli.main import run


def test_lists_items(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", str(films_bundle), "--user", "103", "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["movie_id", "genres", "year", "title", "score"]
    assert len(lines) == 3
    assert lines[1].startswith("1  m")
    assert "Movie" in lines[2]


def test_an_unknown_user_gets_what_is_popular(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", str(films_bundle), "--user", "nobody", "-n", "1"]) == 0
    printed = capsys.readouterr()
    assert "'nobody' is not among the 6 users of the bundle; these are popular now" in printed.err
    assert "m4" in printed.out


def test_a_history_will_do(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", str(films_bundle), "--history", "m1, m2", "-n", "9"]) == 0
    out = capsys.readouterr().out
    assert "Movie 3" in out
    assert "Movie 2" not in out
    assert run(["recommend", str(films_bundle), "--history", "m1,m2", "-n", "9", "--include-seen"]) == 0
    assert "Movie 2" in capsys.readouterr().out


def test_someone_must_be_named(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", str(films_bundle)]) == 2
    assert "give --user ID, or --history" in capsys.readouterr().err


def test_a_ranker_finds_no_candidates(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["recommend", str(films_bundle), "--user", "103", "--with", str(films_bundle)]
    assert run(arguments) == 2
    assert "needs a two_tower model" in capsys.readouterr().err
