"""Fitted features on disk.

features.json                   kinds of the columns, statistics, fingerprint
vocabularies/<table>.parquet    value, count: in the order of their ids
counts/<feature>.parquet        count: by id, where counted
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from easyrec.errors import BundleError

_FILE = "features.json"
_VERSION = 1


@dataclass(frozen=True)
class FittedState:
    """Everything that fitting found out.

    Attributes:
        columns: Kind of each column the features read.
        features: By feature: `type`, `state` (statistics) and `warnings`.
        vocabularies: By table: values in the order of their ids, and their counts or None.
        counts: [rows] int64 by feature: how often each id occurs in the training data.
        fingerprint: Equal where the same rows are encoded alike.
    """

    columns: Mapping[str, str]
    features: Mapping[str, Mapping[str, Any]]
    vocabularies: Mapping[str, tuple[pa.Array, pa.Array | None]] = field(default_factory=dict)
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    fingerprint: str = ""


def save(directory: Path, state: FittedState) -> None:
    """Writes a state into a folder, made if need be."""
    for folder in ("vocabularies", "counts"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for name, (values, counts) in state.vocabularies.items():
        column = pa.nulls(len(values), pa.int64()) if counts is None else counts
        pq.write_table(pa.table({"value": values, "count": column}), _vocabulary_file(directory, name))
    for feature, by_id in state.counts.items():
        pq.write_table(pa.table({"count": by_id}), _counts_file(directory, feature))
    content = {
        "version": _VERSION,
        "fingerprint": state.fingerprint,
        "columns": dict(state.columns),
        "features": dict(state.features),
        "vocabularies": sorted(state.vocabularies),
        "counts": sorted(state.counts),
    }
    (directory / _FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(directory: Path) -> FittedState:
    """The state in a folder.

    Raises:
        BundleError: A file is missing or damaged.
    """
    content = _content(directory / _FILE)
    vocabularies = {}
    for name in content["vocabularies"]:
        table = _table(_vocabulary_file(directory, name))
        counts = table["count"].combine_chunks()
        vocabularies[name] = (table["value"].combine_chunks(), None if counts.null_count else counts)
    return FittedState(
        content["columns"],
        content["features"],
        vocabularies,
        {name: _table(_counts_file(directory, name))["count"].to_numpy() for name in content["counts"]},
        content["fingerprint"],
    )


def digest(facts: Any, vocabularies: Mapping[str, pa.Array]) -> str:
    """SHA-256 over facts that JSON can hold and over vocabularies by table."""
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for table in sorted(vocabularies):
        values = vocabularies[table]
        total.update(json.dumps([table, str(values.type), len(values)]).encode())
        if pa.types.is_integer(values.type):
            total.update(np.asarray(values).astype("<i8").tobytes())
            continue
        total.update(np.asarray(pc.binary_length(values)).astype("<i8").tobytes())
        one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined = pc.binary_join(one_list, pa.scalar("" if "string" in str(values.type) else b"", values.type))
        total.update(joined[0].as_buffer())
    return total.hexdigest()


def _vocabulary_file(directory: Path, table: str) -> Path:
    return directory / "vocabularies" / f"{quote(table, safe='')}.parquet"


def _counts_file(directory: Path, feature: str) -> Path:
    return directory / "counts" / f"{quote(feature, safe='')}.parquet"


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BundleError(f"there are no fitted features at {path}") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"the fitted features {path} cannot be read: {error}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != _VERSION:
        raise BundleError(f"{path} has the version {version!r}; this release reads {_VERSION}")
    absent = FittedState.__dataclass_fields__.keys() - content.keys()
    if absent:
        raise BundleError(f"{path} is damaged: it has no {sorted(absent)}")
    return content


def _table(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except FileNotFoundError as error:
        raise BundleError(f"the fitted features miss the file {path}") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise BundleError(f"the fitted features {path} cannot be read: {error}") from error
