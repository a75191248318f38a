"""The rule that fires, in words a product manager can use."""

from collections.abc import Sequence

from evaluation.abtest.analysis.results import Check, MetricResult, Verdict
from evaluation.abtest.analysis.wording import change, share


def decide(
    variant: str,
    results: Sequence[MetricResult],
    *,
    days: float,
    min_days: int,
    over: bool,
    method: str,
) -> Verdict:
    """The verdict for one variant whose experiment can be trusted.

    Args:
        variant: Its name.
        results: Its metrics.
        days: Days of data.
        min_days: Days before which nothing is said.
        over: Whether the planned units or the end are reached.
        method: How looks are paid for.
    """
    goals = [one for one in results if one.role == "goal"]
    broken = [one for one in results if one.role == "guardrail" and one.conclusion == "broken"]
    unproven = [
        one for one in results if one.role == "guardrail" and one.conclusion in ("not shown", "not yet")
    ]
    worse = [one for one in goals if one.conclusion == "worse"]
    better = [one for one in goals if one.conclusion == "better"]
    if not goals:
        return Verdict(
            "inconclusive", variant, "no goal", "No goal metric is registered, so nothing can be decided."
        )
    if days < min_days:
        left = f"{days:.1f} of at least {min_days} days"
        return Verdict("running", variant, "too few days", f"Not enough days yet: {left}. Keep it running.")
    if broken:
        names = _named(broken)
        text = f"Guardrail broken: {names} got worse by more than the margin. Do not ship {variant}."
        return Verdict("do not ship", variant, "guardrail broken", text)
    if worse:
        return Verdict(
            "do not ship", variant, "goal got worse", f"{_named(worse)}: worse. Do not ship {variant}."
        )
    if better and not unproven:
        held = " and every guardrail holds" if any(one.role == "guardrail" for one in results) else ""
        return Verdict("ship", variant, "goal got better", f"{_named(better)}: better{held}. Ship {variant}.")
    silent = [one for one in goals if one.conclusion == "not yet" and one.note]
    if silent and not better:
        why = "; ".join(f"{one.metric}: {one.note}" for one in silent)
        return Verdict(
            "inconclusive" if over else "running", variant, "nothing to show", f"Nothing to show yet. {why}."
        )
    if not over and method != "fixed":
        waiting = (
            f"guardrails not shown to hold yet ({_names(unproven)})" if better else "no bound is crossed yet"
        )
        return Verdict("running", variant, "planned size not reached", f"Keep it running: {waiting}.")
    if not over:
        return Verdict("running", variant, "end not reached", "The fixed method says nothing before its end.")
    if better:
        text = f"{_named(better)}: better, but not shown to hold: {_names(unproven)}. More data, or a wider margin."
        return Verdict("inconclusive", variant, "guardrail not shown to hold", text)
    seen = [one for one in goals if one.detectable == one.detectable]  # not nan
    size = f" An effect of {share(seen[0].detectable)} or more would have been seen." if seen else ""
    text = f"No difference shown between {variant} and the control in {_names(goals)}.{size}"
    return Verdict("inconclusive", variant, "no difference at the planned size", text)


def overall(verdicts: Sequence[Verdict], checks: Sequence[Check], results: Sequence[MetricResult]) -> Verdict:
    """The verdict for the experiment: of the best variant, unless a check is red."""
    red = [check for check in checks if check.status == "red"]
    if red:
        names = ", ".join(check.title for check in red)
        return Verdict(
            "broken", "", red[0].key, f"The data cannot be trusted; red: {names}. {red[0].advice}".strip()
        )
    ships = [one for one in verdicts if one.word == "ship"]
    if ships:
        lift = {one.variant: one.relative.estimate for one in results if one.role == "goal"}
        best = max(ships, key=lambda one: lift.get(one.variant, 0.0))
        if len(verdicts) > 1:
            warning = " The best of several looks better than it is; expect somewhat less."
            return Verdict(best.word, best.variant, best.rule, best.sentence + warning)
        return best
    for word in ("running", "inconclusive", "do not ship"):
        for one in verdicts:
            if one.word == word:
                return one
    return Verdict("inconclusive", "", "no variant", "There is no variant to judge.")


def _named(results: Sequence[MetricResult]) -> str:
    return ", ".join(
        f"{one.metric} {change(one.relative.estimate)}"
        if one.relative.estimate == one.relative.estimate
        else one.metric
        for one in results
    )


def _names(results: Sequence[MetricResult]) -> str:
    return ", ".join(one.metric for one in results)
