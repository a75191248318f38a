"""The example finds what is true: a model trained, a service as a process, users with known tastes."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "ab_simulation" / "simulate.py"


@pytest.mark.slow
@pytest.mark.integration
def test_the_report_finds_the_true_winner_with_the_right_size(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parents[2]))
    spec = importlib.util.spec_from_file_location("simulate", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    outcome = example.simulate(tmp_path / "world", users=300, visits=4)
    assert outcome.truth > 0.2
    assert outcome.split.trusted, [one for one in outcome.split.checks if one.status == "red"]
    assert (outcome.split.verdict.word, outcome.split.verdict.variant) == ("ship", "ranked")
    ctr = outcome.split.metric("ctr")
    # The interval is of 95%; what is asked here is right in all but a few of 10,000 runs.
    half = (ctr.relative.high - ctr.relative.low) / 2
    assert abs(ctr.relative.estimate - outcome.truth) < 2 * half
    assert outcome.split.check("orphans").status == "green"
    assert outcome.mixed.verdict().startswith("Users prefer ranked")
    assert (tmp_path / "world" / "report" / "experiment.html").exists()
