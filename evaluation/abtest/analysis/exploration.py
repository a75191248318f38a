"""Explored positions with their propensities and what came of them: the rows that off-policy evaluation reads."""

from typing import Any

import ibis

from evaluation.abtest.analysis.tables import event_rows, exposure_rows


def explored_actions(exposures: Any, events: Any, *, event: str = "click", unit: str = "user_id") -> Any:
    """One row a list with an explored position.

    Args:
        exposures: An exposure log of a service with the re-ranker `explore`.
        events: Events with request_id and item_id.
        event: Type that is the reward.
        unit: Column of events that names the user.

    Returns:
        Ibis table: request_id, user, action (the item), position, propensity, reward (1.0 or 0.0). Its columns go into
        `evaluation.off_policy.LoggedActions.of`; a request that several layers logged counts once.
    """
    rows = exposure_rows(exposures)
    rows = rows.filter(rows.propensity.notnull() & rows.explored_item.notnull())
    shown = rows.group_by("request_id").aggregate(
        user=rows.unit.min(),
        action=rows.explored_item.min(),
        position=rows.explored_position.min(),
        propensity=rows.propensity.min(),
    )
    found = event_rows(events, unit)
    taken = found.filter((found.type == event) & found.request_id.notnull())
    taken = taken.select("request_id", action=taken.item_id.cast("string")).distinct()
    joined = shown.left_join(taken, ["request_id", "action"], rname="{name}_taken")
    rewarded = joined.mutate(reward=joined.request_id_taken.notnull().cast("float64"))
    return rewarded.select("request_id", "user", "action", "position", "propensity", "reward").order_by(
        ibis.asc("request_id")
    )
