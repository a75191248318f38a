"""An evaluator beside training measures what the chief measures."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from easyrec.fitting import evaluate_beside, fit

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_each_checkpoint_is_measured_and_the_end_of_the_run_is_noticed(make, tmp_path):
    prepared = make(tmp_path, checkpoints={"keep": 5})
    result = fit(prepared)
    prepared.run.summary_path.write_text("{}")
    said = []
    evaluate_beside(prepared.run, tell=said.append, poll=0.01, patience=0.1)
    lines = [
        json.loads(line) for line in (prepared.run.directory / "evaluator.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [one["step"] for one in result.evaluations]
    for line, one in zip(lines, result.evaluations, strict=True):
        for name, value in one["metrics"].items():
            assert line[name] == pytest.approx(value, abs=1e-6)
    assert any(text.startswith("step ") for text in said)

    def replace_once(text):
        if text.startswith("step ") and not replaced:
            replaced.append(text)
            copy = shutil.copy(prepared.run.config_path, tmp_path / "config.yaml")
            os.replace(copy, prepared.run.config_path)

    replaced, before = [], len(lines)
    evaluate_beside(prepared.run, tell=replace_once, poll=0.01, patience=0.1)
    again = (prepared.run.directory / "evaluator.jsonl").read_text().splitlines()[before:]
    steps = [line["step"] for line in lines]
    assert [json.loads(line)["step"] for line in again] == [
        *steps,
        *steps,
    ]  # a new run is measured from its beginning
