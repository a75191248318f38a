"""What baselines learn from: who interacted with what, and attributes of the items."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from evaluation.arrays import FloatArray, IntArray, SparseRows, floats, weights
from evaluation.errors import DataError


@dataclass(frozen=True)
class Interactions:
    """Positive interactions of users with items, by code. Build it with `of`.

    Attributes:
        users: int64 [n], codes 0 to n_users - 1.
        items: int64 [n], codes 0 to n_items - 1.
        n_users: Number of user codes.
        n_items: Number of item codes.
        times: float64 [n] in any unit, larger is later; None if unknown.
        weights: float64 [n], how much each interaction counts.
    """

    users: IntArray
    items: IntArray
    n_users: int
    n_items: int
    times: FloatArray | None
    weights: FloatArray

    @classmethod
    def of(
        cls,
        users: npt.ArrayLike,
        items: npt.ArrayLike,
        *,
        n_users: int,
        n_items: int,
        times: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
    ) -> "Interactions":
        """Check and wrap interactions.

        Args:
            users: User codes [n].
            items: Item codes [n].
            n_users: Number of user codes; users without interactions are allowed.
            n_items: Number of item codes.
            times: Numbers or datetimes [n], larger is later.
            weight: Non-negative weights [n]; ones by default.

        Returns:
            The interactions.

        Raises:
            DataError: Codes that are not whole numbers in range, lengths that differ, missing times or weights.
        """
        user_codes, item_codes = _codes(users, n_users, "users"), _codes(items, n_items, "items")
        if len(user_codes) != len(item_codes):
            raise DataError(f"There are {len(user_codes):,} users but {len(item_codes):,} items.")
        clock = None if times is None else numbers_of_times(times)
        if clock is not None and len(clock) != len(user_codes):
            raise DataError(f"There are {len(user_codes):,} interactions but {len(clock):,} times.")
        counts = weights(weight, len(user_codes)) if len(user_codes) else np.empty(0)
        return cls(user_codes, item_codes, n_users, n_items, clock, counts)

    def matrix(self, *, binary: bool = False) -> SparseRows:
        """CSR [n_users, n_items] of summed weights, or of ones; an item repeated by a user is one entry."""
        entries = (self.weights, (self.users, self.items))
        result = sparse.csr_array(sparse.coo_array(entries, shape=(self.n_users, self.n_items)))
        if binary:
            result.data = np.ones_like(result.data)
        return result


@dataclass(frozen=True)
class ItemAttributes:
    """Attributes of each item as tokens such as genres or words of a title.

    Attributes:
        tokens: CSR [n_items, n_tokens], how often each token is in the item.
        names: The tokens, by column.
    """

    tokens: SparseRows
    names: tuple[str, ...]

    @classmethod
    def of_tokens(cls, tokens: Sequence[Iterable[str]]) -> "ItemAttributes":
        """From the tokens of each item, in the order of item codes.

        Args:
            tokens: One collection of tokens per item; an empty one where nothing is known.

        Returns:
            The attributes.
        """
        lists = [list(one) for one in tokens]
        row = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        column, names = pd.factorize(np.array(list(chain.from_iterable(lists)), dtype=object))
        entries = (np.ones(len(row)), (row, column))
        matrix = sparse.csr_array(sparse.coo_array(entries, shape=(len(lists), len(names))))
        return cls(matrix, tuple(map(str, names)))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return int(self.tokens.shape[0])


def _codes(values: npt.ArrayLike, n: int, name: str) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise DataError(f"{name} must be whole-number codes [n], got {array.dtype} of shape {array.shape}.")
    result = array.astype(np.int64)
    if len(result) and (result.min() < 0 or result.max() >= n):
        raise DataError(f"{name} must be codes from 0 to {n - 1}, got {result.min()} to {result.max()}.")
    return result


def numbers_of_times(values: npt.ArrayLike) -> FloatArray:
    """Numbers or datetimes as float64 [n], larger is later.

    Raises:
        DataError: A time is missing.
    """
    array = np.asarray(values)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise DataError(
                f"times has a missing value in row {int(np.argmax(np.isnat(array)))} (counting from 0)."
            )
        array = array.astype("datetime64[us]").astype(np.int64)
    return floats(array, "times")
