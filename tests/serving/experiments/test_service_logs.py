"""What the service logged is what the analysis reads, before and after compaction."""

from __future__ import annotations

import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures, to_records
from evaluation.abtest.loading import load_experiments
from evaluation.abtest.pseudonyms import KEY, Pseudonyms
from serving.background import helpers
from serving.events.compaction import compact
from serving.events.compactor import Compactor

HOME = {"sources": {"popular": {"type": "popularity", "n": 40}}, "ranking": {"enabled": False}, "n": 4}
FILE = """\
version: 1
layers: {candidates: {owns: [n]}}
experiments:
  few:
    layer: candidates
    status: running
    percent: 100
    variants: {control: {}, few: {overrides: {n: 3}}}
    metrics: {goals: [ctr]}
    analysis: {cuped_days: 0, min_days: 0, method: fixed}
"""


@pytest.fixture
def served(start, tmp_path):
    """An application that answered 250 users, each of whom clicked the first item."""
    (tmp_path / "experiments.yaml").write_text(FILE, encoding="utf-8")
    client = start(scenes={"home": HOME}, experiments=str(tmp_path / "experiments.yaml"), store="memory")
    events = []
    for user in range(250):
        answer = client.post("/v1/recommend", {"user_id": str(user)}).json()
        events.append(
            {"event_id": f"e{user}", "type": "click", "user_id": str(user), "request_id": answer["request_id"],
             "item_id": answer["items"][0]["item_id"], "properties": {"device": "phone"}}
        )  # fmt: skip
    assert client.post("/v1/events", events).json()["accepted"] == 250
    return client


def counts(folder):
    with duckdb_connection("300MB") as connection:
        table = open_events(connection, folder)
        rows = to_records(table.group_by("type").aggregate(rows=table.count(), users=table.user_id.nunique()))
    return {row["type"]: (row["rows"], row["users"]) for row in rows}


def test_clicks_and_impressions_are_read_while_the_service_runs_and_after_compaction(served, tmp_path):
    data = served.app.state.service.settings.data
    variants = {
        one["variant"]: one["units"]
        for one in served.get("/v1/experiments").json()["experiments"][0]["variants"]
    }
    expected = {"click": (250, 250), "impression": (4 * variants["control"] + 3 * variants["few"], 250)}
    assert counts(data / "events") == expected
    served.app.state.exposures.log.flush()
    with duckdb_connection("300MB") as connection:
        logs = Logs(open_exposures(connection, data / "exposures"), open_events(connection, data / "events"))
        result = analyze(load_experiments(tmp_path / "experiments.yaml"), "few", logs)
    ctr = result.metric("ctr")
    assert (ctr.control, ctr.value) == (pytest.approx(1 / 4), pytest.approx(1 / 3))
    assert result.trusted, [check for check in result.checks if check.status == "red"]
    assert result.check("orphans").status == "green"
    served.app.state.service.writer.stop()
    later = served.app.state.service.clock() + 2 * 3600
    assert (
        compact(data / "events", now=later, late_minutes=600)["events"] == 250
    )  # events, and not yet impressions
    assert counts(data / "events") == expected
    assert compact(data / "events", now=later)["impressions"] > 0
    assert counts(data / "events") == expected


def test_a_user_who_is_forgotten_goes_from_the_exposures_too(served, tmp_path):
    app = served.app
    data, service = app.state.service.settings.data, app.state.service
    assert served.delete("/v1/users/7").status_code == 204
    app.state.exposures.log.close()
    service.writer.stop()
    found = compact(data / "events", now=service.clock() + 2 * 3600, exposures=data / "exposures")
    assert found["rewritten"] == 1
    assert found["events"] == 249
    with duckdb_connection("300MB") as connection:
        rows = to_records(open_exposures(connection, data / "exposures").select("unit_id", "user_id"))
    assert {row["unit_id"] for row in rows} == {str(user) for user in range(250) if user != 7}
    assert len(rows) == 249


def test_with_a_key_no_id_is_in_the_exposures_and_a_user_is_forgotten_all_the_same(
    start, tmp_path, monkeypatch
):
    names = Pseudonyms("a key of the environment")
    monkeypatch.setenv(KEY, "a key of the environment")
    (tmp_path / "experiments.yaml").write_text(FILE, encoding="utf-8")
    client = start(scenes={"home": HOME}, experiments=str(tmp_path / "experiments.yaml"), store="memory")
    for user in range(5):
        client.post("/v1/recommend", {"user_id": f"visitor-{user}", "session_id": f"visit-{user}"})
    app, service = client.app, client.app.state.service
    data = service.settings.data
    app.state.exposures.log.flush()
    text = "".join(path.read_text(encoding="utf-8") for path in (data / "exposures").glob("*.jsonl*"))
    assert text.count(names.of("visitor-3")) == 2  # unit_id and user_id
    assert "visitor-" not in text
    assert "visit-" not in text
    assert client.delete("/v1/users/visitor-3").status_code == 204
    app.state.exposures.log.close()
    service.writer.stop()
    compact(data / "events", now=service.clock() + 2 * 3600, exposures=data / "exposures")
    with duckdb_connection("300MB") as connection:
        rows = to_records(open_exposures(connection, data / "exposures").select("unit_id"))
    assert {row["unit_id"] for row in rows} == {names.of(f"visitor-{user}") for user in (0, 1, 2, 4)}


def test_the_process_that_compacts_knows_both_logs(served):
    service = served.app.state.service
    settings = service.settings
    [compactor] = [
        one
        for one in helpers(settings, service.writer, service.hub, service.decisions)
        if isinstance(one, Compactor)
    ]
    served.delete("/v1/users/8")
    served.app.state.exposures.log.close()
    service.writer.stop()
    compactor._compact()
    with duckdb_connection("300MB") as connection:
        rows = to_records(open_exposures(connection, settings.data / "exposures").select("user_id"))
    assert len(rows) == 249
    assert {"user_id": "8"} not in rows
