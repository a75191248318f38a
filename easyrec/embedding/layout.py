"""Where each table's rows lie inside the fused tables, and where each feature's ids lie in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from easyrec.config.embedding import Initializer
from easyrec.errors import ConfigError
from easyrec.features.outputs import IdsOutput


@dataclass(frozen=True)
class Table:
    """The rows of one vocabulary inside a fused table.

    Attributes:
        name: Name of the table; features that name the same table share its rows.
        rows: Number of rows, missing and out-of-vocabulary ids included.
        dim: Width of an embedding.
        offset: First of its rows in the fused table.
        initializer: How rows start.
    """

    name: str
    rows: int
    dim: int
    offset: int
    initializer: Initializer


@dataclass(frozen=True)
class Group:
    """All outputs of one width: one fused table, one gather and one update per step.

    A batch's ids of a group lie one after the other: first the F single-valued ids of each row (B × F), then the
    values of each multi-valued output in turn.

    Attributes:
        name: The width as text; it names the group's tables and activations.
        dim: Width of an embedding.
        tables: The tables fused, in order of their offsets.
        singles: Single-valued outputs, in order: the fields of `embedding/<name>`.
        multis: Multi-valued outputs, in order.
        columns: Positions of the single-valued outputs in the batch's `ids`, [F].
    """

    name: str
    dim: int
    tables: tuple[Table, ...]
    singles: tuple[IdsOutput, ...]
    multis: tuple[IdsOutput, ...]
    columns: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of the fused table."""
        return sum(table.rows for table in self.tables)

    def offset(self, output: IdsOutput) -> int:
        """First row of the output's table in the fused table."""
        return next(table.offset for table in self.tables if table.name == output.table)

    @property
    def single_offsets(self) -> npt.NDArray[np.int64]:
        """Offsets of the single-valued outputs, [F]."""
        return np.array([self.offset(output) for output in self.singles], np.int64)

    @property
    def id_dtype(self) -> type[np.int32] | type[np.int64]:
        """The narrowest integer that counts the fused table's rows."""
        return np.int32 if self.rows < 2**31 else np.int64


def build_groups(
    outputs: Sequence[IdsOutput], batch_outputs: Sequence[IdsOutput] | None = None
) -> tuple[Group, ...]:
    """Puts the outputs into groups of equal width, in order of first appearance.

    Args:
        outputs: The id outputs to embed, in order.
        batch_outputs: All id outputs of a batch, whose single-valued ones are the columns of `ids`, when `outputs`
            is a selection of them.

    Raises:
        ConfigError: Two outputs share a table but differ in its rows or width, or a sequence has no `max_length`.
    """
    for output in outputs:
        if output.sequence and output.max_length is None:
            raise ConfigError(f"features.{output.feature}: a sequence needs `max_length`, got none")
    _check_shared(outputs)
    singles = [output.feature for output in batch_outputs or outputs if output.single]
    groups = []
    for dim in dict.fromkeys(output.dim for output in outputs):
        members = [output for output in outputs if output.dim == dim]
        own = tuple(output for output in members if output.single)
        groups.append(
            Group(
                name=str(dim),
                dim=dim,
                tables=_tables(members),
                singles=own,
                multis=tuple(output for output in members if not output.single),
                columns=tuple(singles.index(output.feature) for output in own),
            )
        )
    return tuple(groups)


def _tables(members: Sequence[IdsOutput]) -> tuple[Table, ...]:
    tables: dict[str, Table] = {}
    offset = 0
    for output in members:
        if output.table not in tables:
            tables[output.table] = Table(output.table, output.rows, output.dim, offset, output.initializer)
            offset += output.rows
    return tuple(tables.values())


def _check_shared(outputs: Sequence[IdsOutput]) -> None:
    first: dict[str, IdsOutput] = {}
    for output in outputs:
        known = first.setdefault(output.table, output)
        for what in ("rows", "dim"):
            if getattr(known, what) != getattr(output, what):
                raise ConfigError(
                    f"features.{output.feature}: shares the embedding table {output.table!r} with "
                    f"{known.feature!r}, but has {what} {getattr(output, what)} where the other has "
                    f"{getattr(known, what)}; give both the same vocabulary and `embedding_dim`, or another `table`"
                )
