from __future__ import annotations

import json

from easyrec.training.log import RunLog


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_one_object_and_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "run" / "log.jsonl"
    with RunLog(path) as log:
        log.write("train", 3, {"loss": float("nan"), "rate": 0.5, "name": "x"})
        assert lines(path) == [{"event": "train", "step": 3, "loss": None, "rate": 0.5, "name": "x"}]


def test_a_resumed_run_appends_behind_the_last_whole_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "train", "step": 1}\n{"event": "tra')
    with RunLog(path) as log:
        log.write("train", 2, {})
    assert [line["step"] for line in lines(path)] == [1, 2]
