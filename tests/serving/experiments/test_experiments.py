"""Experiments on the running application: variants change lists, exposures are logged, a wrong file changes nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import duckdb
import pytest
from scipy.stats import chi2

from easyrec.errors import ConfigError
from evaluation.abtest.exposure_files import exposures_sql, log_files
from serving.experiments.counts import UnitCounts, chi_square_tail, split_p
from tests.serving.world import KnownModel

HOME = {
    "sources": {"popular": {"type": "popularity", "n": 40}},
    "ranking": {"enabled": False},
    "fallback": {},
    "n": 5,
}
OTHER = {"sources": {"together": {"type": "item_to_item", "n": 30}}, "n": 5}
FILE = """\
version: 1
layers:
  candidates: {owns: [sources.popular.n, n]}
experiments:
  few:
    layer: candidates
    status: running
    percent: 100
    variants:
      control: {}
      few: {overrides: {sources.popular.n: 2}}
    metrics: {goals: [ctr]}
    analysis: {segments: [country], cuped_days: 0, min_days: 0}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "experiments.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def serve(start, file):
    """Starts the application with the file of experiments."""
    return lambda **more: start(
        **{"scenes": {"home": HOME, "other": OTHER}, "experiments": str(file), **more}
    )


def ask(client, user, **more):
    answer = client.post("/v1/recommend", {"user_id": str(user), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def exposures(client):
    service = client.app.state.service
    client.app.state.exposures.log.flush()
    table = duckdb.sql(exposures_sql(log_files(service.settings.data / "exposures"))).df()
    return table.sort_values(["timestamp", "request_id"])


def test_variants_change_the_list_and_are_reported_and_logged(serve):
    client = serve()
    sizes: dict[str, set[int]] = {}
    variants = {}
    for user in range(40):
        answer = ask(client, user, context={"country": "NO", "noise": 1})
        [shown] = answer["experiments"]
        assert (shown["layer"], shown["experiment"]) == ("candidates", "few")
        variants[answer["request_id"]] = shown["variant"]
        length = len(answer["items"])
        sizes.setdefault(shown["variant"], set()).add(length)
    assert sizes == {"control": {5}, "few": {2}}
    table = exposures(client)
    assert dict(zip(table.request_id, table.variant, strict=True)) == variants
    row = table.iloc[0]
    assert (row.unit_type, row.scene, row.could_differ, row.fallback) == ("user_id", "home", True, False)
    assert json.loads(row.attributes) == {"country": "NO"}
    assert row.latency_ms > 0


def test_a_scene_that_the_parameters_do_not_fit_takes_no_part(serve):
    client = serve()
    answer = ask(client, 1, scene="other")
    assert answer["experiments"] == []
    assert answer["degraded"] == []
    assert client.get("/v1/popular").json()["experiments"] == []


def test_the_same_user_gets_the_same_variant_in_another_application(serve, start, file):
    first = [ask(serve(), user)["experiments"] for user in range(10)]
    second = [ask(serve(data=str(file.parent / "second")), user)["experiments"] for user in range(10)]
    assert first == second


def test_what_is_live(serve):
    client = serve()
    for user in range(60):
        ask(client, user)
        ask(client, user)
    shown = client.get("/v1/experiments").json()
    [few] = shown["experiments"]
    assert few["scenes"] == ["default", "home"] or few["scenes"] == ["home"]
    assert sum(variant["units"] for variant in few["variants"]) == 60
    assert sum(variant["requests"] for variant in few["variants"]) == 120
    assert 0.0001 < few["split_p"] <= 1
    assert shown["exposures"]["dropped"] == 0
    assert (
        'easyrec_exposures_total{experiment="few",layer="candidates",variant="few"}'
        in client.get("/metrics").text
    )


def test_assignment_is_explained_and_logs_nothing(serve):
    client = serve()
    found = client.get("/v1/experiments/assignment", params={"user_id": "7", "country": "NO"}).json()
    [one] = found["assignments"]
    assert one["reason"] == "assigned"
    assert one["served_here"]
    assert one["variant"] == ask(client, 7)["experiments"][0]["variant"]
    assert len(exposures(client)) == 1
    nobody = client.get("/v1/experiments/assignment").json()["assignments"][0]
    assert nobody["reason"] == "no_unit"
    assert client.get("/v1/experiments/assignment", params={"scene": "hme"}).status_code == 422


def test_a_wrong_file_is_refused_and_the_old_one_stays(serve, file):
    client = serve()
    before = client.get("/v1/experiments").json()["config"]
    file.write_text(FILE.replace("sources.popular.n: 2", "sources.popular.size: 2"), encoding="utf-8")
    answer = client.post("/v1/experiments/reload")
    assert answer.status_code == 422
    assert any("experiments.yaml:11" in one["message"] for one in answer.json()["errors"])
    live = client.get("/v1/experiments").json()
    assert live["config"] == before
    assert live["refused"]
    assert ask(client, 1)["experiments"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("control: {}", "control: {weight: 5}"), "give it `phase: 2`"),
        (("sources.popular.n: 2}", "sources.popular.n: many}"), "no scene can be served like this"),
        (("sources.popular.n: 2}", "sources.popular.by: citty}"), "Did you mean 'city'"),
        (("owns: [sources.popular.n, n]", "owns: [sources.popular.n, ranking.model]"), None),
    ],
)
def test_changes_are_checked_against_what_is_live(serve, file, change, words):
    client = serve()
    file.write_text(FILE.replace(*change), encoding="utf-8")
    answer = client.post("/v1/experiments/reload")
    assert answer.status_code == (422 if words else 200)
    if words:
        assert words in answer.text


def test_a_model_that_is_not_loaded_is_refused(serve, file):
    client = serve()
    file.write_text(
        FILE.replace("sources.popular.n, n]", "ranking.model]").replace(
            "sources.popular.n: 2", "ranking.model: flims"
        ),
        encoding="utf-8",
    )
    answer = client.post("/v1/experiments/reload")
    assert answer.status_code == 422
    assert "there is no model 'flims'" in answer.text
    assert "films" in answer.text


def test_a_new_file_is_live_without_a_restart(serve, file, monkeypatch):
    monkeypatch.setattr("serving.experiments.live._WATCH_SECONDS", 0.05)
    client = serve()
    before = client.get("/v1/experiments").json()["config"]
    file.write_text(FILE.replace("status: running", "status: paused"), encoding="utf-8")
    os.utime(file, ns=(1, 1))
    for _ in range(200):
        if client.get("/v1/experiments").json()["config"] != before:
            break
        time.sleep(0.02)
    assert ask(client, 1)["experiments"] == []
    file.write_text("version: [", encoding="utf-8")
    for _ in range(200):
        if client.get("/v1/experiments").json()["refused"]:
            break
        time.sleep(0.02)
    assert client.get("/v1/experiments").json()["experiments"][0]["status"] == "paused"


def test_a_service_does_not_start_with_a_wrong_file(serve, file):
    file.write_text(FILE.replace("percent", "prcent"), encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean 'percent'"):
        serve()
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        serve()


def test_without_experiments(start):
    client = start()
    assert client.get("/v1/experiments").status_code == 404
    assert "setting `experiments`" in client.get("/v1/experiments").json()["detail"]
    assert ask(client, 1)["experiments"] == []


def test_anonymous_visits_and_sessions(serve, file):
    file.write_text(FILE.replace("owns: [sources", "unit: visitor, owns: [sources"), encoding="utf-8")
    client = serve()
    answers = [client.post("/v1/recommend", {"session_id": f"s{n}"}).json() for n in range(20)]
    assert {one["experiments"][0]["variant"] for one in answers} == {"control", "few"}
    assert client.post("/v1/recommend", {}).json()["experiments"] == []


def test_two_lists_are_interleaved_and_teams_are_logged(serve, file):
    text = FILE.replace("percent: 100", "percent: 100\n    interleave: true")
    text = text.replace(
        "owns: [sources.popular.n, n]", "owns: [sources.popular.n, sources.popular.by, filters]"
    )
    file.write_text(text.replace("{sources.popular.n: 2}", "{sources.popular.by: city}"), encoding="utf-8")
    client = serve()
    answer = ask(client, 101, n=10)
    assert answer["experiments"][0]["variant"] == "interleaved"
    ids = [item["item_id"] for item in answer["items"]]
    assert len(set(ids)) == len(ids) == 10
    assert [item["position"] for item in answer["items"]] == list(range(1, 11))
    again = ask(client, 101, n=10, request_id=answer["request_id"])
    assert [item["item_id"] for item in again["items"]] == ids
    teams = json.loads(exposures(client).iloc[0].teams)
    assert list(teams) == [str(one) for one in ids]
    assert set(teams.values()) <= {"a", "b", ""}


def test_items_of_both_lists_are_logged_and_explained_with_what_is_theirs(serve, file, monkeypatch):
    monkeypatch.setattr(KnownModel, "item_columns", ["item_id", "year"])
    text = FILE.replace("percent: 100", "percent: 100\n    interleave: true")
    text = text.replace("owns: [sources.popular.n, n]", "owns: [sources.new, sources.popular.enabled]")
    other = "{sources.new: {type: fixed, items: [50, 51, 52, 53, 54]}, sources.popular.enabled: false}"
    file.write_text(text.replace("{sources.popular.n: 2}", other), encoding="utf-8")
    client = serve(events={"item_features": True})
    answer = ask(client, 101, debug=True)
    found_by = [item["sources"] for item in answer["items"]]
    assert {tuple(names) for names in found_by} == {("popular",), ("new",)}
    for names, scores in zip(found_by, answer["debug"]["source_scores"], strict=True):
        assert set(scores) == ({"popular"} if names == ["popular"] else set())
    client.app.state.service.writer.stop()
    [path] = (client.app.state.service.settings.data / "events" / "closed").glob("*.jsonl")
    [impression] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [item["features"]["year"] for item in impression["items"]] == [
        1960 + item["item_id"] for item in answer["items"]
    ]


def test_what_was_served_is_kept_where_only_a_variant_asks_for_it(serve, file):
    text = FILE.replace("owns: [sources.popular.n, n]", "owns: [filters.shown]")
    file.write_text(
        text.replace("control: {}", "control: {weight: 1}").replace(
            "{overrides: {sources.popular.n: 2}}",
            "{weight: 9999, overrides: {filters.shown: {type: served, minutes: 30}}}",
        ),
        encoding="utf-8",
    )
    client = serve()
    lists = []
    for _ in range(2):
        answer = ask(client, 1)
        assert answer["experiments"][0]["variant"] == "few"
        lists.append({item["item_id"] for item in answer["items"]})
        client.app.state.service.writer.write([]).result(10)  # what came before it is written
    assert not lists[0] & lists[1]


def test_live_counts():
    counts = UnitCounts()
    for user in range(5000):
        counts.add(f"u{user}", "a" if user % 2 else "b")
        counts.add(f"u{user}", "a" if user % 2 else "b")
    assert sum(counts.requests.values()) == 10_000
    assert 4900 < sum(counts.units.values()) <= 5000
    assert split_p(counts.units, {"a": 1, "b": 1}) > 0.1
    assert split_p({"a": 900, "b": 1100}, {"a": 1, "b": 1}) < 1e-4
    assert split_p({"a": 3}, {"a": 1, "b": 1}) is None


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("statistic", [0.0, 0.3, 2.0, 11.0, 60.0])
def test_the_tail_without_scipy_is_scipys(statistic, degrees):
    assert chi_square_tail(statistic, degrees) == pytest.approx(chi2.sf(statistic, degrees), rel=1e-9)
