"""The twin of `sequence`."""

from __future__ import annotations

from easyrec.config.features import SequenceFeature
from easyrec.features.batch import RaggedColumn
from easyrec.features.twins.base import Columns, Twin
from easyrec.features.twins.values import flat_rows, missing, places_in_row, ragged


class SequenceTwin(Twin[SequenceFeature]):
    """A list of categories to its latest `max_length` ids."""

    def encode(self, columns: Columns) -> RaggedColumn:
        """[B, L], or [B] text with a separator, to a column of B rows."""
        column = columns[self.inputs[0].name]
        values, rows = flat_rows(column, self.config.separator)
        present = ~missing(values)
        values, rows = values[present], rows[present]
        latest = places_in_row(rows, len(column), latest=True) < self.config.max_length
        return ragged(self.vocabulary.lookup(values[latest]), rows[latest], len(column))
