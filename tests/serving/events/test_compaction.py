"""The log becomes tables to train on: each event once, impressions with their answers, nothing of erased users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serving.events.compaction import compact
from serving.events.event import Event
from serving.events.log import EventLog, line

HOUR = 3600.0
NOW = 1_800_000_000.0
"""Begins an hour."""


def event(event_id: str, received: float = NOW, **options: Any) -> bytes:
    values = {"event_id": event_id, "type": "click", "user_id": "u1", "item_id": "3", **options}
    return line(Event.model_validate(values).record(received))


def impression(
    request_id: str, received: float = NOW, user: str = "u1", of_items: Any = ({}, {}), **features: Any
) -> bytes:
    items = [
        {"item_id": 3, "score": 0.5, "position": 1, "sources": ["towers", "popular"], **of_items[0]},
        {"item_id": 4, "score": None, "position": 2, "sources": [], **of_items[1]},
    ]
    return line(
        {
            "kind": "impression", "received": received, "user_id": user, "session_id": None,
            "request_id": request_id, "scene": "home", "model": {"name": "films", "version": "7"},
            "experiments": [{"layer": "l", "experiment": "e", "variant": "b"}], "degraded": [], "fallback": None,
            "candidates": 500, "items": items, "features": {"user_id": 1, **features},
        }
    )  # fmt: skip


@pytest.fixture
def log(tmp_path) -> EventLog:
    return EventLog(tmp_path)


def closed(log: EventLog, lines: list[bytes], now: float = NOW) -> None:
    log.append(lines, now)
    log.roll()


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    paths = sorted((folder / "parquet" / kind).rglob("*.parquet"))
    tables = [pq.ParquetFile(path).read() for path in paths]
    return pa.concat_tables(tables, promote_options="permissive").to_pylist() if tables else []


def test_each_event_is_written_once_with_its_properties_as_columns(log, tmp_path):
    closed(log, [event("a", properties={"rating": 4, "device": "tv", "type": "x"}), event("b", value=2.5)])
    closed(
        log, [event("a"), event("c", item_id=None, user_id=None, session_id="s", properties={"rating": 4.5})]
    )
    assert compact(tmp_path, NOW + 10) == {"events": 0, "impressions": 0, "rewritten": 0}, (
        "the hour is not over"
    )
    assert compact(tmp_path, NOW + HOUR)["events"] == 3
    assert compact(tmp_path, NOW + HOUR)["events"] == 0
    found = {row["event_id"]: row for row in rows(tmp_path, "events")}
    assert set(found) == {"a", "b", "c"}
    assert (found["a"]["rating"], found["a"]["device"], found["a"]["type"]) == (4.0, "tv", "click")
    assert (found["b"]["rating"], found["b"]["value"]) == (None, 2.5)
    assert (found["c"]["rating"], found["c"]["session_id"], found["c"]["user_id"]) == (4.5, "s", None)
    assert found["a"]["time"].timestamp() == NOW


def test_an_hour_that_is_still_written_waits_and_late_segments_join(log, tmp_path):
    other = EventLog(tmp_path)
    closed(log, [event("a")])
    other.append([event("b")], NOW)
    assert compact(tmp_path, NOW + HOUR)["events"] == 0
    other.roll()
    assert compact(tmp_path, NOW + HOUR)["events"] == 2
    closed(log, [event("c"), event("a")])
    assert compact(tmp_path, NOW + 2 * HOUR)["events"] == 1
    assert sorted(row["event_id"] for row in rows(tmp_path, "events")) == ["a", "b", "c"]


def test_what_was_written_while_the_clock_was_ahead_is_not_left_behind(log, tmp_path):
    ahead = NOW + 365 * 24 * HOUR
    closed(log, [event("a", ahead), impression("r1", ahead)], ahead)
    assert compact(tmp_path, NOW) == {"events": 1, "impressions": 2, "rewritten": 0}


def test_a_duplicate_in_a_later_hour_is_left_out(log, tmp_path):
    closed(log, [event("a")])
    compact(tmp_path, NOW + HOUR)
    closed(log, [event("a", NOW + HOUR), event("b", NOW + HOUR)], NOW + HOUR)
    assert compact(tmp_path, NOW + 2 * HOUR)["events"] == 1


def test_impressions_are_joined_with_what_answered_them(log, tmp_path):
    closed(
        log,
        [
            impression("r1", age=31, recent=[1, 2], city="Oslo"),
            impression("r2", user="u2", age=None),
            event("a", request_id="r1"),
            event("b", request_id="r1", type="purchase", value=9.5),
        ],
    )
    late = [event("c", NOW + HOUR + 60, request_id="r2", item_id="4"), event("d", NOW + HOUR + 60)]
    closed(log, late, NOW + HOUR + 60)
    assert compact(tmp_path, NOW + HOUR)["impressions"] == 0
    assert compact(tmp_path, NOW + 2 * HOUR)["impressions"] == 4
    assert compact(tmp_path, NOW + 3 * HOUR)["impressions"] == 0
    found = {(row["request_id"], row["position"]): row for row in rows(tmp_path, "impressions")}
    first = found["r1", 1]
    assert (first["click"], first["purchase"], first["purchase_value"]) == (1, 1, 9.5)
    assert (first["item_id"], first["score"], first["sources"]) == ("3", 0.5, ["towers", "popular"])
    assert (first["age"], first["recent"], first["city"], first["user_id"]) == (31, [1, 2], "Oslo", "u1")
    assert (first["model_name"], first["scene"], first["candidates"]) == ("films", "home", 500)
    assert first["experiments"] == [{"layer": "l", "experiment": "e", "variant": "b"}]
    assert (found["r1", 2]["click"], found["r1", 2]["purchase_value"], found["r1", 2]["score"]) == (
        0,
        None,
        None,
    )
    assert (found["r2", 1]["click"], found["r2", 2]["click"]) == (0, 1)
    assert not list(tmp_path.rglob("*.jsonl")), "what is in Parquet is not kept twice"


def test_features_of_items_as_served_are_columns(log, tmp_path):
    """A name that the user's features have, too, is the user's; a type of event steps aside."""
    of_items = (
        {"features": {"price": 9.5, "genres": ["a", "b"], "city": "Rome", "click": 7}},
        {"features": {"price": None, "genres": ["c"], "city": "Bonn", "click": 8}},
    )
    lines = [impression("r1", of_items=of_items, city="Oslo"), impression("r2"), event("a", request_id="r1")]
    closed(log, lines)
    assert compact(tmp_path, NOW + 2 * HOUR)["impressions"] == 4
    found = {(row["request_id"], row["position"]): row for row in rows(tmp_path, "impressions")}
    names = ("price", "genres", "city", "click", "event_click")
    assert [found["r1", 1][name] for name in names] == [9.5, ["a", "b"], "Oslo", 7, 1]
    assert [found["r1", 2][name] for name in names] == [None, ["c"], "Oslo", 8, 0]
    assert [found["r2", 1][name] for name in names] == [None, None, None, None, 0]


def test_features_may_have_any_name(log, tmp_path):
    features = {"x AS click": 1, 'say "hi"': 2}
    closed(log, [impression("r1", **features), event("a", request_id="r1")])
    assert compact(tmp_path, NOW + 2 * HOUR)["impressions"] == 2
    (first, _) = sorted(rows(tmp_path, "impressions"), key=lambda row: row["position"])
    assert [first[name] for name in (*features, "click")] == [1, 2, 1]


@pytest.mark.parametrize(
    "name", ["item", "context", "model", "the item", "misfits", "items", "Position", "x.y"]
)
def test_no_feature_keeps_an_hour_from_being_written(log, tmp_path, name):
    closed(log, [impression("r1", {"age": 3}, **{name: 7}), impression("r2", **{name.upper(): "text"})])
    assert compact(tmp_path, NOW + 2 * HOUR)["impressions"] == 4


def test_types_of_events_that_differ_by_case_and_ending_have_columns_of_their_own(log, tmp_path):
    first = [event(str(number), type="click", request_id="r0") for number in range(3)]
    closed(log, [impression("r0"), *first, event("a", type="CLICK", request_id="r0")])
    compact(tmp_path, NOW + 2 * HOUR)
    [before, _] = rows(tmp_path, "impressions")
    assert (before["click"], before["event_CLICK"]) == (3, 1), "what is usual has the plain name"
    now = NOW + 3 * HOUR
    sent = {"click": 1, "CLICK": 2, "click_value": 3, "Position": 4}
    events = [
        event(f"{kind}{number}", now, type=kind, request_id="r1", value=number)
        for kind, count in sent.items()
        for number in range(count)
    ]
    closed(log, [impression("r1", now), *events], now)
    assert compact(tmp_path, now + 2 * HOUR) == {"events": 10, "impressions": 2, "rewritten": 0}
    first, second = (row for row in rows(tmp_path, "impressions") if row["request_id"] == "r1")
    names = ["click", "event_CLICK", "event_event_click_value", "event_Position"]
    assert [first[name] for name in names] == [1, 2, 3, 4]
    assert [second[name] for name in names] == [0, 0, 0, 0]
    assert first["event_event_click_value_value"] == 2


def test_what_one_sender_gets_wrong_changes_the_type_of_no_column(log, tmp_path):
    """The kind of a column is that of its first hour; what does not fit is kept beside it."""
    hours = [
        [
            {"price": 3, "tags": [1, 2], "vip": True},
            {"price": 4, "tags": [3], "vip": False},
            {"price": "cheap"},
        ],
        [{"price": "5", "tags": "1,2", "vip": "yes"}, {"price": 4.5, "tags": [1, "two"], "vip": True}],
        [{"price": {"amount": 1}, "tags": [], "vip": None}],
    ]
    for number, properties in enumerate(hours):
        now = NOW + number * HOUR
        lines = [event(f"{number}-{n}", now, properties=one) for n, one in enumerate(properties)]
        context = [impression(f"r{number}-{n}", now, **one) for n, one in enumerate(properties)]
        closed(log, [*lines, *context], now)
        compact(tmp_path, now + HOUR)
    compact(tmp_path, NOW + 9 * HOUR)
    for kind in ("events", "impressions"):
        files = sorted((tmp_path / "parquet" / kind).rglob("*.parquet"))
        types = {name: set() for name in ("price", "tags", "vip", "misfits")}
        for path in files:
            for field in pq.read_schema(path):
                types.get(field.name, set()).add(field.type)
        numbers = {pa.int64(), pa.float64()}
        assert types["price"] <= numbers
        assert (types["vip"], types["misfits"]) == ({pa.bool_()}, {pa.string()})
        assert types["tags"] == {pa.list_(pa.int64())} or types["tags"] == {
            pa.list_(pa.field("element", pa.int64()))
        }
    found = {row["event_id"]: row for row in rows(tmp_path, "events")}
    assert [found[name]["price"] for name in ("0-0", "0-1", "0-2", "1-0", "1-1", "2-0")] == [
        3, 4, None, None, 4.5, None,
    ]  # fmt: skip
    assert [found[name]["tags"] for name in ("0-0", "1-0", "1-1", "2-0")] == [[1, 2], None, [1, None], None]
    kept = {name: json.loads(row["misfits"]) for name, row in found.items() if row["misfits"]}
    assert kept == {
        "0-2": {"price": "cheap"},
        "1-0": {"price": "5", "tags": "1,2", "vip": "yes"},
        "1-1": {"tags": [1, "two"]},
        "2-0": {"price": {"amount": 1}},
    }


def test_a_list_that_one_sender_gets_wrong_in_the_first_hour_is_a_list(log, tmp_path):
    sent = [[1, 2], [3], [4, 5], "6,7", None, []]
    closed(log, [event(str(n), properties={"recent": value}) for n, value in enumerate(sent)])
    compact(tmp_path, NOW + HOUR)
    found = {row["event_id"]: row for row in rows(tmp_path, "events")}
    assert [found[str(n)]["recent"] for n in range(6)] == [[1, 2], [3], [4, 5], None, None, []]
    assert [json.loads(row["misfits"]) for row in found.values() if row["misfits"]] == [{"recent": "6,7"}]


def test_a_column_that_has_become_something_else_is_taken_as_what_it_is(log, tmp_path):
    closed(log, [event(f"a{n}", properties={"level": n}) for n in range(3)])
    compact(tmp_path, NOW + HOUR)
    for number, count in ((1, 60), (2, 160)):
        now = NOW + number * HOUR
        lines = [event(f"{number}-{n}", now, properties={"level": "high"}) for n in range(count)]
        closed(log, lines, now)
        compact(tmp_path, now + HOUR)
    found = {row["event_id"][0]: row for row in map(dict, _all(tmp_path, "events"))}
    assert found["1"]["level"] is None
    assert json.loads(found["1"]["misfits"]) == {"level": "high"}
    assert found["2"]["level"] == "high"


def test_what_a_model_does_not_read_of_a_request_is_there_for_the_next_one(log, tmp_path):
    shown = json.loads(impression("r1", {"year": 1990}, age=31))
    shown["context"] = {"device": "tv", "year": 7, "age": 99}
    closed(log, [line(shown), impression("r0")])
    compact(tmp_path, NOW + 2 * HOUR)
    found = {(row["request_id"], row["position"]): row for row in rows(tmp_path, "impressions")}
    names = ("device", "age")
    assert [found["r1", 2][name] for name in names] == ["tv", 31]
    assert [found["r0", 1][name] for name in names] == [None, None]


def test_the_files_of_all_hours_fit_together(log, tmp_path):
    """What an hour lacks changes the type of no column, and an event that it lacks did not happen there."""
    hours = [
        [impression("r0", recent=[], device=None, age=31)],
        [
            impression("r1", recent=[1], device="tv", age=None),
            event("a", NOW + HOUR, request_id="r1", value=2),
        ],
        [impression("r2", recent=[], device=None, age=-5, delta=2**63)],
    ]
    for number, lines in enumerate(hours):
        closed(log, lines, NOW + number * HOUR)
        compact(tmp_path, NOW + (number + 1) * HOUR)
    compact(tmp_path, NOW + 9 * HOUR)
    schemas = [
        pq.read_schema(path) for path in sorted((tmp_path / "parquet" / "impressions").rglob("*.parquet"))
    ]
    pa.unify_schemas(schemas)  # every column has one type, wherever it is
    found = {(row["request_id"], row["position"]): row for row in rows(tmp_path, "impressions")}
    assert (found["r1", 1]["click"], found["r2", 1]["click"], found["r2", 1]["recent"]) == (1, 0, None)
    assert (found["r0", 1]["age"], found["r1", 1]["age"], found["r2", 1]["age"]) == (31, None, -5)


def test_a_feature_with_the_name_of_an_event_keeps_its_name(log, tmp_path):
    closed(log, [impression("r1", click=7, score=3), event("a", request_id="r1")])
    compact(tmp_path, NOW + 3 * HOUR)
    row = rows(tmp_path, "impressions")[0]
    assert (row["click"], row["event_click"], row["score"]) == (7, 1, 0.5)


@pytest.mark.parametrize(
    "properties",
    [
        {'a"b': 1, "c'd": 2, "e.f": 3, "g/h~": 4, "": 5, "$": 6, "[0]": 7},
        {"A": 1, "a": 2},
        {"nested": {"deep": [1, {"x": None}]}, "mixed": "text"},
        {"mixed": 1, "none": None, "list": [1, "a"], "big": 2**70},
        {f"k{number}": number for number in range(800)},
        {},
    ],
)
def test_whatever_properties_are_called_and_hold_they_are_kept(log, tmp_path, properties):
    closed(log, [event("a", properties=properties), event("b", properties={"mixed": {"x": 1}}), event("c")])
    assert compact(tmp_path, NOW + HOUR)["events"] == 3
    row = next(row for row in rows(tmp_path, "events") if row["event_id"] == "a")
    for name, value in properties.items():
        if isinstance(value, int) and name in row and value < 2**60 and name != "mixed":
            assert row[name] == value
    assert len(properties) < 500 or json.loads(row["properties"]) == properties


def test_lines_that_are_damaged_cost_only_themselves(log, tmp_path):
    bad = [
        b"garbage\n",
        b'{"kind":"event"}\n',
        b'{"kind":"impression","items":3}\n',
        b"[]\n",
        b"\xff\n",
        b"{\n",
    ]
    closed(log, [event("a"), *bad, impression("r1"), event("b")])
    assert compact(tmp_path, NOW + 3 * HOUR) == {"events": 2, "impressions": 2, "rewritten": 0}


def test_nothing_of_an_erased_user_remains_but_what_came_after(log, tmp_path):
    closed(log, [event("a"), event("b", user_id="u2"), impression("r1"), impression("r2", user="u2")])
    compact(tmp_path, NOW + 2 * HOUR)
    later = NOW + 3 * HOUR
    erase = line({"kind": "erase", "user_id": "u1", "received": later + 10})
    closed(log, [event("c", later), impression("r3", later), erase, event("d", later + 11)], later)
    compact(tmp_path, later + HOUR)
    compact(tmp_path, later + 2 * HOUR)
    assert sorted(row["event_id"] for row in rows(tmp_path, "events")) == ["b", "d"]
    assert {row["request_id"] for row in rows(tmp_path, "impressions")} == {"r2"}
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [data for data in left if b'"user_id":"u1"' in data], "nor is the key kept in clear text"


def test_only_one_process_is_at_it(log, tmp_path):
    closed(log, [event("a")])
    with (tmp_path / "compaction.lock").open("w") as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        assert compact(tmp_path, NOW + HOUR) == {}
    assert compact(tmp_path, NOW + HOUR)["events"] == 1


def test_what_breaks_off_is_done_again(log, tmp_path, monkeypatch):
    closed(log, [event("a"), impression("r1")])
    replace = os.replace

    def break_off(source: Any, target: Any) -> None:
        if "waiting" in str(target):
            raise OSError("the power went")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", break_off)
        compact(tmp_path, NOW + HOUR)
    assert compact(tmp_path, NOW + 2 * HOUR) == {"events": 0, "impressions": 2, "rewritten": 0}
    assert [row["event_id"] for row in rows(tmp_path, "events")] == ["a"]


@pytest.mark.slow
def test_it_runs_as_a_process_of_its_own(log, tmp_path):
    closed(log, [event("a", 1_000_000.0)], 1_000_000.0)
    command = [sys.executable, "-m", "serving.events.compaction", str(tmp_path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[3], capture_output=True)
    assert [row["event_id"] for row in rows(tmp_path, "events")] == ["a"]


def _all(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Rows of files whose columns may differ in type."""
    return [
        row
        for path in sorted((folder / "parquet" / kind).rglob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
