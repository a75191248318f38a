"""The holdout against everybody else, from events alone."""

import numpy as np
import pandas as pd
import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.holdout import analyze_holdout
from evaluation.abtest.analysis.tables import open_events
from evaluation.abtest.assignment import HOLDOUT
from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.loading import parse_experiments

DAY = 86_400.0
START = 1_767_225_600.0


def configuration(percent=20, **more):
    holdout = {"holdout": {"percent": percent, "salt": "2026"}} if percent else {}
    layers = {"ranking": {"owns": ["model"]}}
    variants = {"control": {}, "din": {"overrides": {"model": "din"}}}
    one = {"layer": "ranking", "status": "running", "percent": 50, "variants": variants}
    return parse_experiments({"version": 1, "layers": layers, "experiments": {"din": one}, **holdout, **more})


def write(folder, lift, users=3000, lose=0.0):
    """Events of users; those outside the holdout click more by `lift`."""
    random = np.random.default_rng(4)
    assigner = compile_assigner(configuration())
    names = np.array([f"ü{n}" for n in range(users)])
    # By the assigner of the service, not by the analysis.
    held = np.array([assigner.assign({"user_id": name}, {}, START).holdout for name in names])
    kept = ~(held & (random.random(users) < lose))
    names, held = names[kept], held[kept]
    shown = random.integers(5, 15, len(names))
    clicks = random.binomial(shown, np.where(held, 0.2, 0.2 * (1 + lift)))
    who = np.concatenate([np.repeat(np.arange(len(names)), times) for times in (shown, clicks)])
    events = pd.DataFrame(
        {
            "type": np.repeat(["impression", "click"], [shown.sum(), clicks.sum()]),
            "user_id": names[who],
            "timestamp": START + 10 * DAY * random.random(len(who)),
            "request_id": "r",
            "item_id": random.integers(0, 100, len(who)).astype(str),
        }
    )
    events.to_parquet(folder / "events.parquet", index=False)
    return events, dict(zip(names, held, strict=True))


def analyzed(folder, config=None, metrics=("ctr",), **settings):
    with duckdb_connection("500MB", threads=2) as connection:
        table = open_events(connection, folder / "events.parquet")
        return analyze_holdout(config or configuration(), table, metrics, **settings)


def rates(events, held):
    """CTR of the holdout and of the others, of what counts: from each user's first event on."""
    side = events.user_id.map(held)
    counts = events.groupby([side, events.type]).size()
    return [counts[inside, "click"] / counts[inside, "impression"] for inside in (True, False)]


def test_launches_that_help_are_seen_with_their_size(tmp_path):
    events, held = write(tmp_path, lift=0.2)
    result = analyzed(tmp_path, metrics=["ctr", "clicks", "coverage"])
    assert result.trusted, [check for check in result.checks if check.status == "red"]
    assert result.units == {HOLDOUT: sum(held.values()), "launched": len(held) - sum(held.values())}
    ctr = result.metric("ctr")
    assert [ctr.control, ctr.value] == pytest.approx(rates(events, held), rel=1e-9)
    assert ctr.relative.low < 0.2 < ctr.relative.high
    assert result.verdict.word == "ship"
    assert result.verdict.sentence.startswith("Better with all launches than without: ctr +")
    assert result.metric("coverage").conclusion == "not tested"
    assert result.config_hash == configuration().hash
    later = analyzed(tmp_path, since=START + 5 * DAY, until=START + 8 * DAY)
    inside = events[(events.timestamp >= START + 5 * DAY) & (events.timestamp < START + 8 * DAY)]
    assert sum(later.units.values()) == inside.user_id.nunique()
    found = later.metric("ctr")
    assert [found.control, found.value] == pytest.approx(rates(inside, held), rel=1e-9)


def test_launches_that_harm_or_do_nothing_say_so(tmp_path):
    write(tmp_path, lift=-0.2)
    harmed = analyzed(tmp_path)
    assert harmed.verdict.word == "do not ship"
    assert "Find the launch that costs it" in harmed.verdict.sentence
    write(tmp_path, lift=0.0)
    assert analyzed(tmp_path).verdict.word == "inconclusive"


def test_a_holdout_may_be_looked_at_before_its_end(tmp_path):
    write(tmp_path, lift=0.0)
    early = analyzed(tmp_path, planned_days=40, until=START + 8 * DAY)
    assert (early.method, early.verdict.word) == ("group_sequential", "running")
    assert early.verdict.sentence == "No bound is crossed yet, 20% into the planned time. Keep the holdout."
    ctr = early.metric("ctr")
    once = analyzed(tmp_path, until=START + 8 * DAY).metric("ctr")
    assert ctr.absolute.estimate == once.absolute.estimate
    # A fifth of the time may spend 0.05 / 25, so the interval is 3.1 standard errors wide in place of 2.
    width = (ctr.absolute.high - ctr.absolute.low) / (once.absolute.high - once.absolute.low)
    assert 1.45 < width < 1.75
    end = analyzed(tmp_path, planned_days=10, until=START + 10 * DAY)
    assert (end.verdict.word, end.metric("ctr").conclusion) == ("inconclusive", "no difference shown")
    write(tmp_path, lift=0.5)
    found = analyzed(tmp_path, planned_days=40)
    assert (found.verdict.word, found.metric("ctr").conclusion) == ("ship", "better")


def test_a_holdout_that_loses_users_is_broken(tmp_path):
    write(tmp_path, lift=0.2, lose=0.3)
    result = analyzed(tmp_path)
    assert result.verdict.word == "broken"
    assert [check.key for check in result.checks if check.status == "red"] == ["sample_ratio"]


def test_what_cannot_be_answered(tmp_path):
    write(tmp_path, lift=0.0, users=50)
    with pytest.raises(ExperimentDataError, match="holds nobody out"):
        analyzed(tmp_path, configuration(percent=0))
    with pytest.raises(ExperimentDataError, match="did you mean 'ctr'"):
        analyzed(tmp_path, metrics=["crt"])
    for name in ("latency_p95", "fallback_rate"):
        with pytest.raises(ExperimentDataError, match="counts exposures, and the holdout has none"):
            analyzed(tmp_path, metrics=[name])
    few = analyzed(tmp_path)
    assert few.verdict.rule == "nothing tested"
    assert "ctr: fewer than 100 units" in few.verdict.sentence
    with pytest.raises(ExperimentDataError, match="none in the period"):
        analyzed(tmp_path, since=START + 99 * DAY)
