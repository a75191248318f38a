"""Raw sequence columns from what a user did: the definition that training had, applied to events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.expressions import columns as columns_of
from easyrec.config.expressions import parse
from easyrec.config.features import SequenceFeature
from easyrec.config.pipeline import PipelineConfig
from easyrec.data.expressions import to_arrow
from easyrec.errors import SchemaError
from easyrec.export.manifest import HistoryEntry, Manifest
from serving.models.catalogue import Catalogue


class Histories:
    """Makes the sequence columns of a model.

    Args:
        manifest: Which inputs list what users took.
        config: Conditions and lengths of the histories.
    """

    def __init__(self, manifest: Manifest, config: PipelineConfig) -> None:
        inputs = {entry.name: entry.column for entry in manifest.inputs}
        self._key = manifest.keys.get("item")
        self._entries: dict[str, HistoryEntry] = {inputs[entry.name]: entry for entry in manifest.histories}
        self._wheres: dict[str, str] = {}
        self._last: dict[str, int] = {}
        for name, feature in config.features.items():
            if isinstance(feature, SequenceFeature) and feature.history is not None:
                column = feature.columns(name)[0]
                self._last[column] = feature.history.last
                if feature.history.where is not None:
                    self._wheres[column] = feature.history.where

    @property
    def columns(self) -> list[str]:
        """The sequence columns that are made from what users took."""
        return list(self._entries)

    @property
    def event_columns(self) -> set[str]:
        """Columns of events that the conditions of the histories read."""
        return set().union(*(columns_of(parse(where)) for where in self._wheres.values()))

    def __call__(
        self, catalogue: Catalogue, items: Sequence[Any], events: Mapping[str, Sequence[Any]] | None = None
    ) -> dict[str, Any]:
        """The raw sequence columns of one user.

        Args:
            catalogue: The items.
            items: Keys of what the user took, oldest first; unknown ones have no attributes.
            events: Other columns of the same events, each as long as `items`. An event counts where the condition of
                a history holds; a condition over a column that is not here cannot be judged, and all events count.

        Returns:
            One value a column, as `ServedModel.user` takes it.

        Raises:
            SchemaError: A column of `events` is not as long as `items`.
        """
        for name, values in (events or {}).items():
            if len(values) != len(items):
                raise SchemaError(
                    f"history: {name!r} has {len(values)} values for {len(items)} items; give one an item"
                )
        return {
            column: self._column(column, entry, catalogue, list(items), events or {})
            for column, entry in self._entries.items()
        }

    def _column(
        self,
        column: str,
        entry: HistoryEntry,
        catalogue: Catalogue,
        items: list[Any],
        events: Mapping[str, Sequence[Any]],
    ) -> Any:
        kept = self._counting(column, items, events)
        if entry.of == self._key:
            values = kept
        else:
            rows = catalogue.rows(kept)
            values = catalogue.column(entry.of, rows[rows >= 0]).to_pylist()
        values = [value for value in values if value is not None][-self._last.get(column, len(values) or 1) :]
        return values if entry.separator is None else entry.separator.join(map(str, values))

    def _counting(self, column: str, items: list[Any], events: Mapping[str, Sequence[Any]]) -> list[Any]:
        if column not in self._wheres:
            return items
        expression = parse(self._wheres[column])
        if not columns_of(expression) <= events.keys():
            return items
        table = pa.table({name: pa.array(events[name]) for name in columns_of(expression)})
        holds = np.asarray(pc.fill_null(to_arrow(expression, table), False))
        return [item for item, counts in zip(items, holds, strict=True) if counts]
