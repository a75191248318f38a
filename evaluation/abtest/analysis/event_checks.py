"""Checks of the table of events: counted once, with an exposure, in time."""

from dataclasses import dataclass
from typing import Any

from evaluation.abtest.analysis.results import Check
from evaluation.abtest.analysis.tables import to_records
from evaluation.abtest.analysis.units import UnitTable
from evaluation.abtest.analysis.wording import share

LOST = 0.001
ORPHANS = 0.01
REQUESTS = 2_000_000
_CLOCK = 60.0


def repeated_events(table: UnitTable, events: Any) -> Check:
    """No event is in the table twice, by its id; of a large log a fixed share of the ids is looked at."""
    title, rule = "events counted once", f"red above {share(LOST)} of events"
    if events is None or "event_id" not in events.columns:
        return Check("repeated_events", title, "skipped", "events carry no event ids", rule)
    one_in = -(-table.counts["rows"] // REQUESTS)
    rows = events.filter(events.event_id.notnull())
    rows = rows.filter(rows.event_id.hash() % one_in == 0) if one_in > 1 else rows
    times = rows.group_by("event_id").aggregate(times=rows.count())
    [row] = to_records(times.aggregate(events=times.times.sum(), ids=times.count()))
    total, again = int(row["events"] or 0), int(row["events"] or 0) - int(row["ids"] or 0)
    rate = again / max(total, 1)
    return Check(
        "repeated_events",
        title,
        "skipped" if not total else "red" if rate > LOST else "green",
        f"{again:,} of {total:,} events ({share(rate, 2)}) repeat the id of another one"
        + (f"; one id in {one_in} looked at" if one_in > 1 else ""),
        rule,
        "What is in the table twice is counted twice, so every sum is too large. Keep one row of each event_id.",
    )


@dataclass(frozen=True)
class Feedback:
    """Events that name a request, beside the requests of the log.

    Attributes:
        answers: Those of exposed units after their first exposure.
        alone: Of them, those whose request the log does not hold.
        matched: Events whose request it holds, at any time.
        early: Of them, those that seem to come before the request.
        one_in: Share of the requests that was looked at: one in so many.
    """

    answers: int
    alone: int
    matched: int
    early: int
    one_in: int

    @property
    def note(self) -> str:
        """What share was looked at, in words."""
        return f"; one request in {self.one_in} looked at" if self.one_in > 1 else ""


def feedback_of(table: UnitTable, events: Any) -> Feedback | None:
    """Events and requests in one pass; of a large log a fixed share of the requests, chosen by their ids."""
    if events is None or "request_id" not in events.columns:
        return None
    one_in = -(-table.counts["rows"] // REQUESTS)

    def some(rows: Any) -> Any:
        rows = rows.filter(rows.request_id.notnull())
        return rows.filter(rows.request_id.hash() % one_in == 0) if one_in > 1 else rows

    rows = some(table.rows)
    requests = rows.group_by("request_id").aggregate(shown=rows["at"].min())
    answers = some(events).select("unit", "request_id", "at")
    joined = answers.left_join(table.units.select("unit", "first"), "unit", rname="{name}_of_unit")
    joined = joined.left_join(requests, "request_id", rname="{name}_of_log")
    answer = joined.first.notnull() & (joined["at"] >= joined.first) & (joined["at"] < table.closing)
    known = joined.shown.notnull()
    [row] = to_records(
        joined.aggregate(
            answers=answer.cast("int64").sum(),
            alone=(answer & ~known).cast("int64").sum(),
            matched=known.cast("int64").sum(),
            early=(known & (joined["at"] < joined.shown - _CLOCK)).cast("int64").sum(),
        )
    )
    return Feedback(**{name: int(value or 0) for name, value in row.items()}, one_in=one_in)


def orphans(feedback: Feedback | None) -> Check:
    """Feedback that names a request for which no exposure is logged."""
    title, rule = "feedback has an exposure", f"amber above {share(ORPHANS, 0)}"
    if feedback is None:
        return Check("orphans", title, "skipped", "events carry no request ids", rule)
    rate = feedback.alone / max(feedback.answers, 1)
    return Check(
        "orphans",
        title,
        "amber" if rate > ORPHANS else "green",
        f"{feedback.alone:,} of {feedback.answers:,} events with a request id ({share(rate, 2)}) have none"
        + feedback.note,
        rule,
        "Some requests were served without the experiment (another scene, a time-out), or exposures are missing.",
    )


def clocks(feedback: Feedback | None) -> Check:
    """Feedback on a request that seems to come before it."""
    title, rule = "clocks agree", f"amber if more than {share(ORPHANS, 0)} of feedback is a minute too early"
    if feedback is None:
        return Check("clocks", title, "skipped", "events carry no request ids", rule)
    rate = feedback.early / max(feedback.matched, 1)
    return Check(
        "clocks",
        title,
        "skipped" if not feedback.matched else "amber" if rate > ORPHANS else "green",
        f"{feedback.early:,} of {feedback.matched:,} ({share(rate, 2)}){feedback.note}",
        rule,
        "Clocks of the service and of the senders of events disagree; early feedback would count as history.",
    )
