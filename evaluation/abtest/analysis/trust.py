"""Checks that come before any number. A red one hides the verdict: the data would answer another question.

Thresholds follow common practice: p < 0.001 for tests, 1% of units in two variants, 0.1% of rows lost (Fabijan et al.,
"Diagnosing sample ratio mismatch in online controlled experiments", KDD 2019).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.abtest.analysis.event_checks import LOST, clocks, feedback_of, orphans, repeated_events
from evaluation.abtest.analysis.hidden_units import RAW
from evaluation.abtest.analysis.results import Check, Status
from evaluation.abtest.analysis.tables import to_records
from evaluation.abtest.analysis.units import UnitTable, counts_by_variant
from evaluation.abtest.analysis.wording import probability, share
from evaluation.abtest.assignment import CompiledExperiment
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.ratio_check import independence_p, sample_ratio_p
from evaluation.arrays import FloatArray

P = 0.001
MULTI = 0.01
MIN_EXPECTED = 8
REPLAYED = 20_000


@dataclass(frozen=True)
class Subject:
    """What the checks look at.

    Attributes:
        table: Units.
        weights: Configured weights by variant.
        control: Name of the control.
        exposures: All rows of the log, of every experiment.
        events: Events, None if there are none.
        dropped: Rows the log lost, by variant.
        replay: The compiled experiment, to assign again.
        before: Moments before the experiment, by metric and variant; empty without history.
        experiment: Name.
    """

    table: UnitTable
    weights: Mapping[str, int]
    control: str
    exposures: Any
    events: Any
    dropped: Mapping[str, int]
    replay: CompiledExperiment
    before: Mapping[str, Mapping[str, Moments]]
    experiment: str


def trust_checks(subject: Subject) -> list[Check]:
    """All checks, in the order in which a reader should look at them."""
    checks = [sample_ratio(subject), sample_ratio_by_day(subject)]
    checks += [
        sample_ratio_by_segment(subject, place, name) for place, name in enumerate(subject.table.segments)
    ]
    feedback = feedback_of(subject.table, subject.events)
    checks += [
        several_variants(subject),
        replayed(subject),
        exposure_loss(subject),
        fallback_balance(subject),
        before_difference(subject),
        repeated_events(subject.table, subject.events),
        orphans(feedback),
        clocks(feedback),
        *overlaps(subject),
    ]
    return checks


def _counts(subject: Subject) -> dict[str, int]:
    found = {row["variant"]: int(row["units"]) for row in counts_by_variant(subject.table)}
    return {**dict.fromkeys(subject.weights, 0), **found}


def sample_ratio(subject: Subject) -> Check:
    """Units by variant against the configured weights."""
    counts = _counts(subject)
    names = list(counts)
    weights = [float(subject.weights.get(name, 0)) for name in names]
    p = sample_ratio_p([counts[name] for name in names], weights)
    expected = [sum(counts.values()) * weight / sum(weights) for weight in weights if weight]
    shown = ", ".join(f"{name} {counts[name]:,}" for name in names)
    strangers = [name for name in names if name not in subject.weights]
    return Check(
        "sample_ratio",
        "sample ratio",
        "red" if p < P else "skipped" if min(expected) < MIN_EXPECTED else "green",
        f"{shown}; p {probability(p)}" + (f"; not configured: {', '.join(strangers)}" if strangers else ""),
        f"red if p < {P} against the configured weights",
        "Units are missing from an arm, so the arms are no longer alike. Look for what happens between assignment and "
        "exposure: a crash or redirect in one variant, a filter of bots, a log that loses rows.",
    )


def _independence(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[float, str]:
    """The p-value of variants by groups large enough, and the group that differs most."""
    variants = sorted({str(row["variant"]) for row in rows})
    groups = sorted({row[column] for row in rows if row[column] is not None}, key=str)
    table = np.zeros((len(groups), len(variants)))
    for row in rows:
        if row[column] is not None:
            table[groups.index(row[column]), variants.index(str(row["variant"]))] += row["units"]
    large = table.sum(axis=1) >= MIN_EXPECTED * max(len(variants), 1)
    table, kept = table[large], [group for group, ok in zip(groups, large, strict=True) if ok]
    if len(kept) < 2:
        return float("nan"), ""
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    worst = int(np.argmax((((table - expected) ** 2) / np.maximum(expected, 1e-9)).sum(axis=1)))
    return independence_p(table), str(kept[worst])


def sample_ratio_by_day(subject: Subject) -> Check:
    """The split of new units is the same every day."""
    p, worst = _independence(counts_by_variant(subject.table, "day"), "day")
    return _split_check("sample_ratio_by_day", "sample ratio by day", p, f"day {worst} of the experiment")


def sample_ratio_by_segment(subject: Subject, place: int, name: str) -> Check:
    """The split is the same in every segment."""
    column = f"segment_{place}"
    p, worst = _independence(counts_by_variant(subject.table, column), column)
    return _split_check(f"sample_ratio_by_{name}", f"sample ratio by {name}", p, f"{name} {worst}")


def _split_check(key: str, title: str, p: float, worst: str) -> Check:
    status: Status = "skipped" if np.isnan(p) else "red" if p < P else "green"
    finding = "nothing to compare" if status == "skipped" else f"p {probability(p)}"
    if status == "red":
        finding += f"; most unlike the others: {worst}"
    return Check(
        key,
        title,
        status,
        finding,
        f"red if p < {P} for the split being the same everywhere",
        f"Something happened at {worst} that was not the same for all variants: a release, an outage, a failing log.",
    )


def several_variants(subject: Subject) -> Check:
    """Units that saw more than one variant."""
    counts = subject.table.counts
    rate = counts["multi_variant_units"] / max(counts["units"], 1)
    return Check(
        "several_variants",
        "units in one variant",
        "red" if rate > MULTI else "green",
        f"{counts['multi_variant_units']:,} of {counts['units']:,} units saw several ({share(rate, 2)}); left out",
        f"red above {share(MULTI, 0)}",
        "The unit's id changes or is shared (log-in, cookies), or the split was changed without a new phase.",
    )


def replayed(subject: Subject) -> Check:
    """The configuration gives each unit the variant that the log says."""
    units = subject.table.units.select("unit", "variant")
    if subject.events is not None and RAW in subject.events.columns:
        # Names cannot be drawn on; the ids behind them are known from what these units did.
        known = subject.events.select("unit", RAW).distinct()
        units = units.inner_join(known, "unit").select("variant", unit=RAW)
    units = units.limit(REPLAYED)
    wrong, example, seen = 0, "", 0
    for row in to_records(units):
        chosen = subject.replay.choose(row["unit"])
        seen += 1
        if chosen is None or chosen.key != row["variant"]:
            wrong += 1
            example = (
                example or f"{row['unit']!r} saw {row['variant']}, not {chosen.key if chosen else 'any'}"
            )
    return Check(
        "replay",
        "assignment replays",
        "red" if wrong else "green" if seen else "skipped",
        f"{wrong:,} of {seen:,} units differ" + (f"; e.g. unit {example}" if wrong else ""),
        "red if any unit differs",
        "The log was written under another configuration than this one (salt, weights, phase), or by another program.",
    )


def exposure_loss(subject: Subject) -> Check:
    """Rows that the log had to drop."""
    lost = {name: subject.dropped.get(name, 0) for name in subject.weights}
    kept = {
        row["variant"]: row["rows"]
        for row in to_records(
            subject.table.units.group_by("variant").aggregate(rows=subject.table.units.rows.sum())
        )
    }
    total = sum(lost.values())
    rate = total / max(total + sum(kept.values()), 1)
    table = np.array([[lost[name], kept.get(name, 0)] for name in subject.weights], dtype=np.float64)
    p = independence_p(table) if total else 1.0
    bad = rate > LOST or p < P
    by_arm = ", ".join(f"{name} {count:,}" for name, count in lost.items())
    return Check(
        "exposure_loss",
        "exposures kept",
        "red" if bad else "green",
        f"{total:,} rows lost ({share(rate, 3)}): {by_arm}" if total else "no row lost",
        f"red above {share(LOST)} or if variants lose differently (p < {P})",
        "The exposure log was too slow or its disk was full; raise its capacity and start a new phase.",
    )


def fallback_balance(subject: Subject) -> Check:
    """How often a variant could not be served and something else was."""
    units = subject.table.units
    rows = to_records(
        units.group_by("variant").aggregate(
            c=units.count(),
            n=units.fallbacks.cast("float64").sum(),
            d=units.rows.cast("float64").sum(),
            nn=(units.fallbacks.cast("float64") * units.fallbacks).sum(),
            nd=(units.fallbacks.cast("float64") * units.rows).sum(),
            dd=(units.rows.cast("float64") * units.rows).sum(),
        )
    )
    arms = {row["variant"]: row for row in rows}
    rates = {name: row["n"] / row["d"] for name, row in arms.items()}
    control = arms.get(subject.control)
    smallest = 1.0
    for name, row in arms.items():
        if name != subject.control and control is not None and min(row["c"], control["c"]) > 1:
            p = float(compare(_ratio(control), _ratio(row)).absolute.p_value())
            smallest = min(smallest, 1.0 if np.isnan(p) else p)
    return Check(
        "fallback_balance",
        "fallbacks alike",
        "red" if smallest < P else "green",
        ", ".join(f"{name} {share(rate, 2)}" for name, rate in sorted(rates.items())) + " of requests",
        f"red if a variant differs from the control at p < {P}",
        "A variant often fails and users see the fallback in its place. Repair it (time-outs, missing model) and start "
        "a new phase.",
    )


def _ratio(row: Mapping[str, Any]) -> Moments:
    count = float(row["c"])
    products = np.zeros((4, 4))
    products[0, 0], products[1, 1], products[3, 3] = row["nn"], row["dd"], count
    products[0, 1] = products[1, 0] = row["nd"]
    products[0, 3] = products[3, 0] = row["n"]
    products[1, 3] = products[3, 1] = row["d"]
    sums: FloatArray = np.array([row["n"], row["d"], 0.0, count], dtype=np.float64)
    return Moments.of_sums(count, sums, products)


def before_difference(subject: Subject) -> Check:
    """The arms did not differ before the experiment."""
    smallest, worst, seen = 1.0, "", 0
    for metric, arms in subject.before.items():
        control = arms.get(subject.control)
        for variant, one in arms.items():
            if variant == subject.control or control is None:
                continue
            p = float(compare(control, one).absolute.p_value())
            if not np.isnan(p):
                seen += 1
                smallest, worst = min((smallest, worst), (p, f"{metric} of {variant}"))
    status: Status = "skipped" if not seen else "red" if smallest * seen < P else "green"
    finding = "no history" if not seen else f"smallest of {seen} p-values {probability(smallest)} ({worst})"
    return Check(
        "before",
        "alike before the start",
        status,
        finding,
        f"red if a goal differs before the first exposure at p < {P} (Bonferroni)",
        "The arms differed before anyone saw a difference: a salt used before, or a carry-over from an earlier "
        "experiment with the same users. Start a new phase with a new salt.",
    )


def overlaps(subject: Subject) -> list[Check]:
    """Variants of other experiments are spread evenly over ours."""
    others = subject.exposures.filter(
        (subject.exposures.experiment != subject.experiment)
        & (subject.exposures["at"] >= subject.table.origin)
        & (subject.exposures["at"] < subject.table.until)
        & ~subject.exposures.forced
    )
    seen = others.group_by("unit", "experiment").aggregate(other=others.variant.argmin(others["at"]))
    joined = subject.table.units.select("unit", "variant").inner_join(seen, "unit")
    rows = to_records(joined.group_by("experiment", "variant", "other").aggregate(units=joined.count()))
    checks = []
    for name in sorted({row["experiment"] for row in rows}):
        mine = [row for row in rows if row["experiment"] == name]
        p, _ = _independence(mine, "other")
        checks.append(
            Check(
                f"overlap_{name}",
                f"independent of {name}",
                "skipped" if np.isnan(p) else "amber" if p < P else "green",
                f"{sum(row['units'] for row in mine):,} units in both; "
                + ("nothing to compare" if np.isnan(p) else f"p {probability(p)}"),
                f"amber if p < {P}",
                f"Variants of {name} are not spread evenly over the variants here, so its effect is part of this one. "
                "Put both into one layer, or check their salts.",
            )
        )
    return checks
