"""An explored position: how often, with which probability, and what off-policy evaluation makes of the log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.exploration import explored_actions
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.off_policy import LoggedActions, estimate_value

FILE = """\
version: 1
layers: {exploration: {owns: [reranking.explore.enabled]}}
experiments:
  explore:
    layer: exploration
    status: running
    percent: 100
    variants: {control: {}, explore: {weight: 1000000, overrides: {reranking.explore.enabled: true}}}
    metrics: {goals: [ctr]}
"""
HOME = {
    "sources": {"popular": {"type": "popularity", "n": 20}},
    "ranking": {"enabled": False},
    "reranking": {"explore": {"type": "explore", "position": 2, "epsilon": 0.5, "pool": 5, "enabled": False}},
    "n": 4,
}
BEST = 3  # the item that is always clicked; the list shows item 1 on the second place


def test_what_was_explored_feeds_off_policy_evaluation(start, tmp_path):
    (tmp_path / "experiments.yaml").write_text(FILE, encoding="utf-8")
    client = start(scenes={"home": HOME}, experiments=str(tmp_path / "experiments.yaml"), store="memory")
    shown, events = Counter(), []
    for number in range(600):
        body = {"user_id": "7", "request_id": f"r{number}"}
        items = [item["item_id"] for item in client.post("/v1/recommend", body).json()["items"]]
        assert len(set(items)) == 4
        assert items[0] == 0
        shown[items[1]] += 1
        if items[1] == BEST:
            events.append(
                {
                    "event_id": f"e{number}",
                    "type": "click",
                    "user_id": "7",
                    "item_id": BEST,
                    "request_id": f"r{number}",
                }
            )
    assert shown[1] == pytest.approx(600 * 0.6, abs=50)
    assert all(shown[item] == pytest.approx(600 * 0.1, abs=30) for item in (2, 3, 4, 5))
    client.post("/v1/events", events)
    client.app.state.exposures.log.flush()
    data = client.app.state.service.settings.data
    with duckdb_connection("300MB") as connection:
        rows = explored_actions(
            open_exposures(connection, data / "exposures"), open_events(connection, data / "events")
        ).to_pyarrow()
    assert rows.num_rows == 600
    assert set(np.round(rows["propensity"].to_numpy(), 6)) == {0.6, 0.1}
    assert rows["reward"].to_numpy().sum() == len(events)
    # A policy that always shows the best item would always be clicked; the logs know, without ever running it.
    target = (np.array(rows["action"].to_pylist()) == str(BEST)).astype(float)
    logs = LoggedActions.of(rows["reward"].to_numpy(), rows["propensity"].to_numpy(), target)
    result = estimate_value(logs)
    assert result.estimates["ips"].estimate.value == pytest.approx(1.0, abs=0.4)
    assert result.estimates["snips"].estimate.value == pytest.approx(1.0, abs=0.01)
