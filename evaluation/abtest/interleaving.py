"""One list made of two rankings: team-draft interleaving. Standard library only.

Radlinski, Kurup and Joachims, "How does clickthrough data reflect retrieval quality?" (CIKM 2008). In each round a coin
decides which ranking picks first; then each picks its best item that is not in the list yet. What both rankings would
show at the top in the same order is credited to neither.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from evaluation.abtest.hashing import drawer

Key = TypeVar("Key", bound=Hashable)
TEAM_A, TEAM_B, NEITHER = "a", "b", ""


def team_draft(
    first: Sequence[Key], second: Sequence[Key], count: int, *, salt: str, request_id: str
) -> tuple[list[Key], list[str]]:
    """Interleave two rankings.

    Args:
        first: Items of ranking A, best first, without repetition.
        second: Items of ranking B.
        count: Length of the list.
        salt: Of the experiment.
        request_id: Seeds the coins, so that the same request gives the same list again.

    Returns:
        The items, and for each the team it is credited to: "a", "b", or "" in the common beginning.
    """
    draw = drawer(f"{salt}/interleave")
    common = 0
    while common < min(len(first), len(second), count) and first[common] == second[common]:
        common += 1
    items: list[Key] = list(first[:common])
    teams = [NEITHER] * common
    taken = set(items)
    sides = {TEAM_A: list(first[common:]), TEAM_B: list(second[common:])}
    coins, left, place = 0, 0, 0
    while len(items) < count and (sides[TEAM_A] or sides[TEAM_B]):
        if not left:
            # 64 coins a draw.
            coins, left, place = draw(f"{request_id}/{place}"), 64, place + 1
        order = (TEAM_A, TEAM_B) if coins & 1 else (TEAM_B, TEAM_A)
        coins, left = coins >> 1, left - 1
        for team in order:
            item = _best(sides[team], taken)
            if item is not None and len(items) < count:
                items.append(item)
                teams.append(team)
                taken.add(item)
    return items, teams


def _best(ranking: list[Key], taken: set[Key]) -> Key | None:
    while ranking:
        item = ranking.pop(0)
        if item not in taken:
            return item
    return None


def credit(clicks: Sequence[Key], items: Sequence[Key], teams: Sequence[str]) -> tuple[int, int]:
    """How many of the clicked items each team brought; an item counts once, one of neither team not at all."""
    team_of = dict(zip(items, teams, strict=True))
    clicked = [team_of.get(item, NEITHER) for item in set(clicks)]
    return clicked.count(TEAM_A), clicked.count(TEAM_B)
