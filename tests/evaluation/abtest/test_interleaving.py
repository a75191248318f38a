"""Team-draft interleaving: fair, repeatable, complete."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evaluation.abtest.interleaving import credit, team_draft

RANKING = st.lists(st.integers(0, 30), unique=True, max_size=20)


def drafted(first, second, count, request="r"):
    return team_draft(first, second, count, salt="s", request_id=request)


@given(RANKING, RANKING, st.integers(0, 15))
def test_every_list_is_complete_and_without_repetition(first, second, count):
    items, teams = drafted(first, second, count)
    assert len(items) == len(teams) == min(count, len(set(first) | set(second)))
    assert len(set(items)) == len(items)
    assert set(items) <= set(first) | set(second)
    assert drafted(first, second, count) == (items, teams)
    # Team A's items stand in A's order.
    mine = [item for item, team in zip(items, teams, strict=True) if team == "a"]
    assert mine == [item for item in first if item in mine]


@given(RANKING, st.integers(0, 15))
def test_two_equal_rankings_are_one_and_credited_to_neither(ranking, count):
    items, teams = drafted(ranking, ranking, count)
    assert items == ranking[:count]
    assert set(teams) <= {""}


def test_teams_are_alike_over_requests():
    first, second = list(range(10)), list(range(100, 110))
    leads, sizes = Counter(), Counter()
    for number in range(4000):
        items, teams = drafted(first, second, 6, f"r{number}")
        leads[teams[0]] += 1
        sizes.update(teams)
        assert abs(teams.count("a") - teams.count("b")) == 0
        assert set(items) == {0, 1, 2, 100, 101, 102}
    assert 1850 < leads["a"] < 2150


def test_a_ranking_that_the_user_likes_better_wins():
    liked = {5, 6, 7}
    scores = []
    for number in range(500):
        items, teams = drafted([1, 2, 3, 5], [5, 6, 7, 1], 4, f"r{number}")
        a, b = credit([item for item in items if item in liked], items, teams)
        scores.append(b - a)
    assert sum(scores) > 300


def test_credit_counts_an_item_once_and_ignores_strangers():
    assert credit(["x", "x", "y", "z", "?"], ["x", "y", "z"], ["a", "b", ""]) == (1, 1)
    assert credit([], ["x"], ["a"]) == (0, 0)
