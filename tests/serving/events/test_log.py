"""Segments hold whole lines, whatever breaks off."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from serving.events import log as log_module
from serving.events.log import EventLog, LogError, hour_name, line, read_segment

NOW = 1_800_000_000.0


def lines(*numbers: int) -> list[bytes]:
    return [line({"number": number}) for number in numbers]


def numbers(folder) -> list[int]:
    return sorted(record["number"] for path in folder.rglob("*.jsonl") for record, _ in read_segment(path))


def test_what_is_appended_is_there(tmp_path):
    log = EventLog(tmp_path)
    log.append(lines(1, 2), NOW)
    log.append(lines(3), NOW, sync=False)
    assert numbers(tmp_path / "open") == [1, 2, 3]
    log.roll()
    assert numbers(tmp_path / "closed") == [1, 2, 3]
    assert not list((tmp_path / "open").iterdir())


def test_a_segment_is_closed_when_it_is_full_or_its_hour_is_over(tmp_path):
    log = EventLog(tmp_path, segment_bytes=20)
    for number in range(4):
        log.append(lines(number), NOW)
    assert len(list((tmp_path / "closed").iterdir())) == 1
    log.append(lines(9), NOW + 3600)
    log.roll_if_due(NOW + 3600)
    assert len(list((tmp_path / "open").iterdir())) == 1
    log.roll_if_due(NOW + 7200)
    assert not list((tmp_path / "open").iterdir())
    assert {path.name[:13] for path in (tmp_path / "closed").iterdir()} == {
        hour_name(NOW),
        hour_name(NOW + 3600),
    }
    assert numbers(tmp_path) == [0, 1, 2, 3, 9]


def test_a_clock_that_jumps_back_overwrites_nothing(tmp_path):
    log = EventLog(tmp_path)
    for number, moment in enumerate([NOW, NOW - 7200, NOW, NOW + 100_000, NOW]):
        log.append(lines(number), moment)
    log.roll()
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("torn", [b'{"number": 3', b'{"number": 3}', b"\xff\xfe", b"", b"x" * 200_000])
def test_a_line_that_a_crash_left_incomplete_is_cut_off(tmp_path, torn):
    dead = EventLog(tmp_path)
    dead.append(lines(1, 2), NOW)
    os.write(dead._segment.file, torn)
    os.close(dead._segment.file)  # as when the process dies: the lock is gone
    log = EventLog(tmp_path)
    log.append(lines(7), NOW)
    replayed = []
    assert log.take_over(lambda path: replayed.extend(read_segment(path))) == 1
    assert [record["number"] for record, _ in replayed] == [1, 2]
    (closed,) = (tmp_path / "closed").iterdir()
    assert closed.read_bytes().endswith(b"\n")
    assert log.take_over(replayed.append) == 0


def test_a_segment_whose_replay_breaks_off_is_replayed_again(tmp_path):
    dead = EventLog(tmp_path)
    dead.append(lines(1), NOW)
    os.close(dead._segment.file)

    def break_off(path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventLog(tmp_path).take_over(break_off)
    replayed: list[Path] = []
    assert EventLog(tmp_path).take_over(replayed.append) == 1
    assert len(replayed) == 1


def test_the_segment_of_a_living_process_is_left_alone(tmp_path):
    living, other = EventLog(tmp_path), EventLog(tmp_path)
    living.append(lines(1), NOW)
    assert other.take_over(print) == 0
    living.append(lines(2), NOW)
    assert numbers(tmp_path / "open") == [1, 2]


def test_an_empty_segment_leaves_nothing(tmp_path):
    dead = EventLog(tmp_path)
    dead._current(NOW)
    os.close(dead._segment.file)
    assert EventLog(tmp_path).take_over(print) == 0
    assert not list((tmp_path / "open").iterdir())


def test_damaged_lines_are_passed_over(tmp_path):
    path = tmp_path / "segment.jsonl"
    path.write_bytes(b"".join([*lines(1), b"garbage\n", b"[1]\n", b"\n", *lines(2), b'{"number": 3']))
    found = list(read_segment(path))
    assert [record["number"] for record, _ in found] == [1, 2]
    assert [record["number"] for record, _ in read_segment(path, found[0][1])] == [2]


@pytest.mark.parametrize("written", [0, 5, 10_000])
def test_a_full_disk_loses_nothing_that_was_accepted_and_keeps_nothing_that_was_not(
    tmp_path, monkeypatch, written
):
    log = EventLog(tmp_path)
    log.append(lines(1), NOW)
    write = os.write

    def full(file: int, data: bytes) -> int:
        if written:
            write(file, bytes(data)[:written])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_module.os, "write", full)
    for _ in range(3):
        with pytest.raises(LogError, match=r"cannot be written to .*No space left"):
            log.append(lines(2, 3), NOW)
    monkeypatch.undo()
    log.append(lines(4), NOW)
    log.roll()
    assert numbers(tmp_path) == [1, 4]


def test_a_disk_that_does_not_confirm_is_not_believed(tmp_path, monkeypatch):
    log = EventLog(tmp_path)

    def broken(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, "fdatasync", broken)
        with pytest.raises(LogError, match="Input/output error"):
            log.append(lines(1), NOW)
    log.append(lines(2), NOW)
    log.roll()
    assert 2 in numbers(tmp_path)


def test_the_open_segment_is_locked(tmp_path):
    log = EventLog(tmp_path)
    log.append(lines(1), NOW)
    with next((tmp_path / "open").iterdir()).open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
