"""Filters: what may not be recommended to this person now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from easyrec.config.expressions import Expression, columns, parse
from easyrec.data.expressions import to_arrow
from easyrec.errors import ConfigError
from serving.funnel.candidates import Mask, Rows
from serving.funnel.query import Query
from serving.funnel.stages import FILTERS, FilterConfig, Resources
from serving.people.person import SEEN
from serving.stores.base import Mark

_DAY, _MINUTE = 86_400.0, 60.0
_CLOCKS_APART = 300.0
"""What was served further ahead than this was served while a clock was wrong, and does not count for ever."""


def condition(text: str) -> str:
    """An expression that can be read; whether its columns exist shows with the catalogue."""
    parse(text)
    return text


Condition = Annotated[str, AfterValidator(condition)]


class SeenConfig(FilterConfig):
    """Drops what the person has met: items of events, and those the bundle knows of."""

    type: Literal["seen"] = "seen"
    events: tuple[str, ...] = ()
    """Only events of these types, such as `purchase`; all unless given."""
    days: float | None = Field(None, gt=0)
    """Only the events of so many days; all unless given."""
    bundle: bool = True
    """Also what the user took in the training data."""


class Seen:
    """See `SeenConfig`."""

    def __init__(self, config: SeenConfig, resources: Resources) -> None:
        self._config = config

    def keep(self, query: Query, rows: Rows) -> Mask:
        """Those not met."""
        config, person = self._config, query.person
        since = -np.inf if config.days is None else query.now - config.days * _DAY
        marks = [
            mark
            for mark in person.record.seen
            if mark.time >= since and (not config.events or mark.type in config.events)
        ]
        met = [_rows(query, marks)]
        if config.bundle:
            met.append(query.catalogue.rows(query.bundle().get(SEEN) or ()))
        return ~np.isin(rows, np.concatenate(met))


class ServedConfig(FilterConfig):
    """Drops what the person was shown a short while ago, so that the next page repeats nothing."""

    type: Literal["served"] = "served"
    minutes: float = Field(60.0, gt=0)
    """How long ago."""


class ServedLately:
    """See `ServedConfig`."""

    def __init__(self, config: ServedConfig, resources: Resources) -> None:
        self._config = config

    def keep(self, query: Query, rows: Rows) -> Mask:
        """Those not shown."""
        since, until = query.now - self._config.minutes * _MINUTE, query.now + _CLOCKS_APART
        lately = [mark for mark in query.person.record.served if since <= mark.time <= until]
        return ~np.isin(rows, _rows(query, lately))


class ExpressionConfig(FilterConfig):
    """Keeps the items for which an expression over the item table holds, such as `year >= 1990`."""

    type: Literal["expression"] = "expression"
    where: Condition
    """The expression (docs/reference/expressions.md); a missing value counts as no."""


class ExpressionFilter:
    """See `ExpressionConfig`."""

    def __init__(self, config: ExpressionConfig, resources: Resources) -> None:
        self._expression = parse(config.where)
        self._columns = sorted(columns(self._expression))

    def keep(self, query: Query, rows: Rows) -> Mask:
        """Those for which it holds."""
        table = query.catalogue.table(rows, self._columns or [query.catalogue.key])
        return holds(self._expression, table)


class BlockedConfig(FilterConfig):
    """Drops items by their keys."""

    type: Literal["blocked"] = "blocked"
    items: tuple[str | int, ...] = Field(min_length=1)
    """The keys."""


class Blocked:
    """See `BlockedConfig`."""

    def __init__(self, config: BlockedConfig, resources: Resources) -> None:
        self._items = config.items

    def keep(self, query: Query, rows: Rows) -> Mask:
        """Those not listed."""
        return ~np.isin(rows, query.catalogue.rows(self._items))


class CategoriesConfig(FilterConfig):
    """Keeps or drops items by the categories in one of their columns, which may hold several."""

    type: Literal["categories"] = "categories"
    column: str
    """The column, a text or a list."""
    separator: str | None = Field(None, min_length=1)
    """What stands between several categories in a text."""
    allow: tuple[str, ...] = ()
    """Only items with one of these; all unless given."""
    deny: tuple[str, ...] = ()
    """No items with one of these."""


class Categories:
    """See `CategoriesConfig`."""

    def __init__(self, config: CategoriesConfig, resources: Resources) -> None:
        self._config = config

    def keep(self, query: Query, rows: Rows) -> Mask:
        """Those with an allowed category and without a denied one."""
        config = self._config
        owner, values = categories(query.catalogue.column(config.column, rows), config.separator)
        keep = np.ones(len(rows), bool)
        if config.allow:
            keep = np.zeros(len(rows), bool)
            keep[owner[_among(values, config.allow)]] = True
        keep[owner[_among(values, config.deny)]] = False
        return keep


def holds(expression: Expression, table: pa.Table) -> Mask:
    """[N] the rows of a table for which a condition holds; a missing value counts as no.

    Raises:
        ConfigError: The expression gives something else than yes or no.
    """
    values = to_arrow(expression, table)
    if not pa.types.is_boolean(values.type):
        raise ConfigError(
            f"where: expected a condition, such as `year >= 1990`, but the expression gives {values.type}"
        )
    return np.asarray(pc.fill_null(values, False), bool)


def categories(column: pa.ChunkedArray, separator: str | None) -> tuple[np.ndarray, pa.Array]:
    """The categories of items: for each, the place of its item, and the category as text."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if separator is not None and pa.types.is_string(values.type):
        values = pc.split_pattern(values, separator)
    owner = np.arange(len(values))
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        owner = np.repeat(owner, pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False))
        values = pc.list_flatten(values)
    return owner, values.cast(pa.string())


def _among(values: pa.Array, wanted: Sequence[str]) -> Mask:
    found = pc.is_in(values, value_set=pa.array(wanted, pa.string()))
    return np.asarray(pc.fill_null(found, False), bool)


def _rows(query: Query, marks: Sequence[Mark]) -> Rows:
    return query.catalogue.rows([mark.item_id for mark in marks])


for _name, _config, _implementation in (
    ("seen", SeenConfig, Seen),
    ("served", ServedConfig, ServedLately),
    ("expression", ExpressionConfig, ExpressionFilter),
    ("blocked", BlockedConfig, Blocked),
    ("categories", CategoriesConfig, Categories),
):
    FILTERS.register(_name, _config, _implementation)
