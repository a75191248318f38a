"""The catalogue's encoded features as arrays on disk, so that loading a bundle encodes nothing.

candidates/encoded/<tensor>.npy    one array for each tensor that `encode_items` gives, row i describes item i

Text that features of both sides need later is not kept here; it is taken from the item table when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.errors import BundleError
from easyrec.export.inputs import to_tensors
from easyrec.export.manifest import HALF, EncodedEntry, InputEntry
from easyrec.export.tables import KeyedTable
from easyrec.features.batch import EncodedBatch, RaggedColumn

ENCODED = "encoded"
_RAW = "raw/"


def write_encoded(folder: Path, items: EncodedBatch, entries: Sequence[EncodedEntry]) -> None:
    """Writes the encoded items.

    Args:
        folder: Where; made here.
        items: All items.
        entries: What `encode_items` gives.
    """
    folder.mkdir()
    for entry in _stored(entries):
        array = items.dense[entry.key] if entry.part is None else getattr(items.ragged[entry.key], entry.part)
        np.save(folder / f"{entry.tensor}.npy", np.ascontiguousarray(array))


def read_encoded(
    folder: Path, items: KeyedTable, entries: Sequence[EncodedEntry], inputs: Sequence[InputEntry]
) -> EncodedBatch:
    """The encoded items, memory-mapped.

    Args:
        folder: What `write_encoded` has written.
        items: The item table.
        entries: What `encode_items` gives.
        inputs: Raw inputs of the model.

    Raises:
        BundleError: A file cannot be read, or does not fit the item table.
    """
    dense: dict[str, npt.NDArray[Any]] = {}
    ragged: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for entry in _stored(entries):
        path = folder / f"{entry.tensor}.npy"
        try:
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise BundleError(f"{path} cannot be read: {error}") from error
        if entry.part in (None, "row_lengths") and len(array) != len(items):
            raise BundleError(f"{path} has {len(array)} rows, but there are {len(items)} items")
        if entry.part is None:
            dense[entry.key] = array
        else:
            ragged.setdefault(entry.key, {})[entry.part] = array
    raw = {
        entry.key.removeprefix(_RAW)
        for entry in entries
        if entry.side == "item" and entry not in _stored(entries)
    }
    wanted = [entry for entry in inputs if entry.name in raw]
    if wanted:
        tensors = to_tensors(items.table, wanted)
        dense |= {_RAW + entry.name: tensors[entry.tensor] for entry in wanted}
    return EncodedBatch(len(items), dense, {key: RaggedColumn(**parts) for key, parts in ragged.items()})


def check_encoded(items: EncodedBatch, rows: npt.NDArray[np.int64], again: EncodedBatch) -> None:
    """Compares stored items with the same ones encoded again.

    Args:
        items: All items as stored.
        rows: Which of them were encoded again.
        again: These.

    Raises:
        BundleError: They differ.
    """
    stored, found = items.take(rows).as_dict(), again.as_dict()
    for name, array in found.items():
        if name.startswith(_RAW):
            continue
        same = array.shape == stored[name].shape and (
            np.allclose(array, stored[name], *_tolerance(name))
            if array.dtype == np.float32
            else np.array_equal(array, stored[name])
        )
        if not same:
            raise BundleError(
                f"the stored items and the same items encoded now differ in {name!r}; the bundle was damaged, or this "
                "machine computes differently; export it again here with `easyrec export RUN`"
            )


def _tolerance(name: str) -> tuple[float, float]:
    """How far values may lie apart, in proportion and at all: a network's parts may be added up in another order."""
    return (1e-4, 1e-4) if name.startswith(HALF) else (1e-5, 1e-6)


def sample_rows(items: pa.Table, n: int = 16) -> npt.NDArray[np.int64]:
    """Rows spread over a table."""
    return np.unique(np.linspace(0, len(items) - 1, min(n, len(items))).astype(np.int64))


def _stored(entries: Sequence[EncodedEntry]) -> list[EncodedEntry]:
    return [
        entry
        for entry in entries
        if entry.side == "item" and not (entry.part is None and entry.key.startswith(_RAW))
    ]
