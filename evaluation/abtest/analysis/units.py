"""One row a unit: the variant of its first exposure. Everything else is about these units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ibis

from evaluation.abtest.analysis.engines import kept
from evaluation.abtest.analysis.tables import DAY, attribute, to_records
from evaluation.abtest.errors import ExperimentDataError

GRACE = 3600.0
"""Seconds after the last exposure in which its answer may still come."""


@dataclass(frozen=True)
class UnitTable:
    """The exposed units of an experiment's phase.

    Attributes:
        rows: Exposure rows that count (not forced, could differ if triggered), with columns at, unit, variant.
        units: Ibis table: unit, id (a number of its own, or the unit again), first, last, variant, rows, fallbacks,
            day (of the first exposure), segment_0...
        segments: Names of the segment columns.
        origin: Midnight (UTC) of the day of the first exposure, seconds since 1970.
        until: End of the data, seconds since 1970; windows may end until then.
        closing: When the experiment ended or was seen last: what units do later, under something else, does not count
            for metrics without a window.
        counts: What was counted on the way: rows, forced_rows, untriggered_rows, units, multi_variant_units.
        start: The first exposure, seconds since 1970.
    """

    rows: Any
    units: Any
    segments: Sequence[str]
    origin: float
    until: float
    closing: float
    counts: dict[str, int]
    start: float

    @property
    def days(self) -> int:
        """Calendar days from the first exposure to the closing."""
        return max(1, int((self.closing - self.origin - 1e-6) // DAY) + 1)

    @property
    def age(self) -> float:
        """Days from the first exposure to the closing, with their fraction."""
        return self.age_at(self.days - 1)

    def age_at(self, day: int) -> float:
        """Days from the first exposure to the end of a calendar day, the first being 0, or to the closing."""
        return (min(self.origin + (day + 1) * DAY, self.closing) - self.start) / DAY


def unit_table(
    exposures: Any,
    experiment: str,
    phase: int,
    *,
    triggered: bool,
    segments: Sequence[str] = (),
    until: float | None = None,
    washout: float = 0.0,
) -> UnitTable:
    """Find the units of an experiment.

    Args:
        exposures: Of `exposure_rows`.
        experiment: Name.
        phase: Phase.
        triggered: Leave out rows for which the variants could not differ.
        segments: Attributes, as they were at the first exposure.
        until: End of the data; that of the exposures unless given.
        washout: Seconds at the start of a time slot that do not count: what came before still has its effect.

    Raises:
        ExperimentDataError: The log holds no usable exposure of the phase, or ids are missing.
    """
    mine = exposures.filter((exposures.experiment == experiment) & (exposures.phase == phase))
    if until is not None:
        mine = mine.filter(mine["at"] < until)
    counts = _counts(mine, exposures, experiment, phase, "" if until is None else " before --until")
    counted = mine.filter(~mine.forced & mine.unit.notnull() & (mine.unit != "") & mine["at"].notnull())
    if triggered:
        counted = counted.filter(counted.could_differ)
    if washout:
        counted = counted.filter(counted["at"] - counted.unit.cast("float64") >= washout)
    names = [f"segment_{place}" for place in range(len(segments))]
    counted = counted.mutate(
        **{name: attribute(counted, one) for name, one in zip(names, segments, strict=True)}
    )
    grouped = counted.group_by("unit").aggregate(
        first=counted["at"].min(),
        last=counted["at"].max(),
        variant=counted.variant.argmin(counted["at"]),
        low=counted.variant.min(),
        high=counted.variant.max(),
        rows=counted.count(),
        fallbacks=counted.fallback.cast("int64").sum(),
        **{name: counted[name].argmin(counted["at"]) for name in names},
    )
    grouped = kept(grouped)
    [span] = to_records(
        grouped.aggregate(
            first=grouped.first.min(),
            last=grouped["last"].max(),
            units=grouped.count(),
            multi=(grouped.low != grouped.high).cast("int64").sum(),
        )
    )
    if not span["units"]:
        raise ExperimentDataError(
            f"No exposure of experiment {experiment!r}, phase {phase}, can be used: {counts['forced_rows']} rows were "
            f"forced by allow lists, {counts['untriggered_rows']} could not differ between variants, "
            f"{counts['rows_without_unit']} have no unit and {counts['rows_without_time']} no time."
        )
    counts |= {"units": int(span["units"]), "multi_variant_units": int(span["multi"])}
    origin = span["first"] // DAY * DAY
    units = grouped.filter(grouped.low == grouped.high)
    # In DuckDB everything after this joins on a small number in place of the unit's text; to number rows, Spark would
    # have to bring them all to one machine.
    in_process = units.get_backend().name == "duckdb"
    units = units.mutate(
        day=((units.first - origin) / DAY).floor().cast("int32"),
        id=ibis.row_number().cast("int32") if in_process else units.unit,
    )
    units = kept(units.drop("low", "high"))
    last = float(span["last"])
    end = until if until is not None else last + 1e-3
    return UnitTable(
        counted, units, list(segments), origin, end, min(last + GRACE, end), counts, float(span["first"])
    )


def _counts(mine: Any, exposures: Any, experiment: str, phase: int, when: str) -> dict[str, int]:
    [found] = to_records(
        mine.aggregate(
            rows=mine.count(),
            forced_rows=mine.forced.cast("int64").sum(),
            untriggered_rows=(~mine.could_differ & ~mine.forced).cast("int64").sum(),
            rows_without_unit=(mine.unit.isnull() | (mine.unit == "")).cast("int64").sum(),
            rows_without_time=mine["at"].isnull().cast("int64").sum(),
        )
    )
    if not found["rows"]:
        seen = to_records(
            exposures.group_by("experiment", "phase").aggregate(rows=exposures.count()).limit(20)
        )
        names = (f"{one['experiment'] or 'rows without a name'} (phase {one['phase']})" for one in seen)
        there = ", ".join(sorted(names)) or "nothing"
        raise ExperimentDataError(
            f"The exposure log has no row of experiment {experiment!r}, phase {phase}{when}. It holds: {there}."
        )
    return {name: int(value or 0) for name, value in found.items()}


def counts_by_variant(table: UnitTable, *more: str) -> Sequence[dict[str, Any]]:
    """Numbers of units by variant and further columns of the unit table."""
    return to_records(table.units.group_by("variant", *more).aggregate(units=table.units.count()))


def eligible(units: Any, window_days: float | None, end: float) -> Any:
    """Whether a unit's window was over at `end`; without a window, whether it was exposed before."""
    return units.first + (window_days or 0.0) * DAY <= end if window_days else units.first < ibis.literal(end)
