"""Events are validated one by one, and times are read in every usual form."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.events.event import Event, entry_of, parse_events, seconds
from serving.events.log import line

GOOD = {"event_id": "e", "type": "click", "user_id": "u", "item_id": "i"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, 1_700_000_000.0),
        (1_700_000_000_123, 1_700_000_000.123),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T22:13:20", 1_700_000_000.0),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000.0),
        ("2023-11-14", 1_699_920_000.0),
        (0, 0.0),
    ],
)
def test_times(value, expected):
    assert seconds(value) == expected


@pytest.mark.parametrize("value", [-1, "yesterday", "", None, True, [], 1e300, math.inf, math.nan, "9" * 400])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(ValueError, match="time"):
        seconds(value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"event_id": None}, "event_id"),
        ({"event_id": ""}, "event_id"),
        ({"event_id": "x" * 300}, "event_id"),
        ({"type": "no spaces"}, "type"),
        ({"type": 3}, "type"),
        ({"user_id": None}, "session_id for somebody anonymous"),
        ({"user_id": 1.5}, "user_id"),
        ({"user_id": True}, "user_id"),
        ({"position": 0}, "position"),
        ({"value": math.inf}, "value"),
        ({"timestamp": "soon"}, "timestamp: expected a time"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": math.nan}}, "finite"),
        ({"properties": {"a": "x" * 70_000}}, "65536 bytes"),
        ({"properties": {"a": "\ud800"}}, "whole characters"),
        ({"usr_id": "u"}, "usr_id"),
    ],
)
def test_what_is_wrong_is_said(change, reason):
    events, rejected = parse_events([GOOD, {**GOOD, **change}])
    assert [index for index, _ in events] == [0]
    assert [index for index, _ in rejected] == [1]
    assert reason in rejected[0][1]


def test_keys_that_are_numbers_are_their_text():
    event = Event.model_validate({**GOOD, "user_id": 7, "item_id": 8.0})
    assert (event.user_id, event.item_id) == ("7", "8")


def test_a_clock_that_is_ahead_does_not_put_an_event_into_the_future():
    event = Event.model_validate({**GOOD, "timestamp": 2_000_000_000})
    record = event.record(1_700_000_000.0)
    assert record["timestamp"] == 2_000_000_000, "the log keeps what was said"
    assert entry_of(record).behaviour.time == 1_700_000_000.0
    assert entry_of(Event.model_validate(GOOD).record(5.0)).behaviour.time == 5.0


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_is_taken_or_refused_and_what_is_taken_survives_the_log(value):
    event = {**GOOD, "properties": {"any": value}}
    for events, rejected in (parse_events([value]), parse_events([event])):
        assert len(events) + len(rejected) == 1
        for _, one in events:
            assert json.loads(line(one.record(1.0)))["properties"] == json.loads(json.dumps(one.properties))
