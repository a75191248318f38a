"""Ranked lists from a table with a row for each candidate: the rows of a user or request, by falling score."""

import numpy as np

from evaluation.arrays import (
    AnyFloatArray,
    ArrayLike,
    FloatArray,
    IntArray,
    codes,
    name_rows,
    same_length,
    sort_within,
)
from evaluation.errors import DataError
from evaluation.metrics.ranking import RankedLists
from evaluation.metrics.rows import Rows, regression_rows

_TIES = 7  # seed of the order of tied scores


def ranked_rows(
    label: ArrayLike, score: ArrayLike, group: ArrayLike, *, length: int | None = None
) -> RankedLists:
    """Rank the rows of each group by score.

    Tied scores are ordered at random with a fixed seed: the order of the rows in the table, which may give the labels
    away, has no influence.

    Args:
        label: Relevance of each row, at least 0 [n]; above 0 is a hit.
        score: Finite scores [n].
        group: The user, session or request of each row [n].
        length: Positions kept; all of the longest group by default. Relevant rows below them still count as
            relevant.

    Returns:
        The lists of groups with a relevant row, groups numbered in order of first appearance; items are row numbers.

    Raises:
        DataError: See `rows.regression_rows`; also a negative label, a missing group or another length.
    """
    rows = regression_rows(label, score)
    numbers, n_groups = codes(group, "group")
    same_length(len(rows.label), numbers, "group")
    return lists_by_code(rows, numbers, n_groups, length)


def lists_by_code(rows: Rows, group: IntArray, n_groups: int, length: int | None = None) -> RankedLists:
    """`ranked_rows` for checked rows and groups numbered from 0; row weights are not used.

    Raises:
        DataError: A negative label.
    """
    if (rows.label < 0).any():
        raise DataError(
            f"label must be a relevance of at least 0 to rank by, got {rows.label.min():g} in "
            f"{name_rows(rows.label < 0)}."
        )
    sizes = np.bincount(group, minlength=n_groups)
    positions = int(sizes.max()) if length is None else length
    n_relevant = np.bincount(group[rows.label > 0], minlength=n_groups)
    kept = np.flatnonzero(n_relevant > 0)
    shape = (n_groups, positions)
    relevance, items = np.zeros(shape), np.full(shape, -1, dtype=np.int64)
    order, place = _ranked(rows.score, group, sizes)
    top = place < positions
    row, column = order[top], place[top]
    cell = group[row] * positions + column
    relevance.ravel()[cell] = rows.label[row]
    items.ravel()[cell] = row
    return RankedLists(
        users=kept,
        items=items[kept],
        relevance=relevance[kept],
        n_relevant=n_relevant[kept].astype(np.int64),
        ideal=_ideal(rows.label, group, n_relevant, shape)[kept],
        n_excluded=n_groups - len(kept),
    )


def _ranked(score: AnyFloatArray, group: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows by group and falling score, and the position of each in its group."""
    order = sort_within(group, len(sizes), np.argsort(-score))
    place = _place_in_group(sizes)
    ordered = score[order]
    tied = np.zeros(len(order), dtype=bool)  # with the row before, in the same group
    tied[1:] = (ordered[1:] == ordered[:-1]) & (place[1:] > 0)
    if tied.any():
        # Only rows that are tied with a neighbour change places, each run of them within itself.
        in_run = tied.copy()
        in_run[:-1] |= tied[1:]
        moved = np.flatnonzero(in_run)
        chance = np.random.default_rng(_TIES).random(len(moved))
        order[moved] = order[moved[np.lexsort((chance, np.cumsum(~tied)[moved]))]]
    return order, place


def _place_in_group(sizes: IntArray) -> IntArray:
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _ideal(label: FloatArray, group: IntArray, n_relevant: IntArray, shape: tuple[int, int]) -> FloatArray:
    hit = np.flatnonzero(label > 0)
    grades = label[hit]
    is_graded = len(hit) > 0 and grades.min() != grades.max()
    falling = np.argsort(-grades, kind="stable") if is_graded else np.arange(len(hit))
    order = hit[sort_within(group[hit], len(n_relevant), falling)]
    place = _place_in_group(n_relevant)
    top = place < shape[1]
    ideal = np.zeros(shape)
    ideal[group[order][top], place[top]] = label[order][top]
    return ideal
