"""Forgetting users in an exposure log.

Rows go as a whole, like the events of these users: a row without its id would stay a unit that did nothing, and no
assignment could be replayed from it. Segments that still grow are left alone until they are sealed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposures import SEALED

DONE = ".erased.json"
"""Which files were searched for which erasures, so that a large log is not read again and again."""
_USER = "user_id"


def digest(user_id: Any) -> str:
    """How erased users are named: the SHA-256 of their id's text, in hexadecimal."""
    return hashlib.sha256(str(user_id).encode("utf-8", "surrogatepass")).hexdigest()


def erase_users(directory: str | os.PathLike[str], erased: Mapping[str, float]) -> int:
    """Remove the rows of erased users: those with their `user_id`, and those whose unit they are.

    Each file is written anew beside the old one and takes its place at once. What an erased user saw later stays.

    Args:
        directory: Of the log; it may be missing.
        erased: When each user was erased, seconds since 1970, by `digest`.

    Returns:
        Number of files that held such rows.

    Raises:
        ExperimentDataError: A file cannot be read or written; the others are done.
    """
    folder = Path(directory)
    if not erased or not folder.is_dir():
        return 0
    wanted = digest(sorted(erased.items()))
    done = _done(folder)
    rewritten, problems = 0, []
    for suffix, write in ((".parquet", _without_in_parquet), (SEALED, _without_in_segment)):
        for path in sorted(folder.glob(f"**/*{suffix}")):
            name = str(path.relative_to(folder))
            if done.get(name) == wanted:
                continue
            try:
                rewritten += _rewritten(path, write, erased)
                done[name] = wanted
            except FileNotFoundError:
                continue  # compaction has just turned it into Parquet, which is searched next time
            except (OSError, duckdb.Error) as error:
                problems.append(f"{path}: {error}")
    _note(folder, {name: mark for name, mark in done.items() if (folder / name).exists()})
    if problems:
        raise ExperimentDataError(
            f"Erased users may remain in {len(problems)} files of the exposure log: {'; '.join(problems)}"
        )
    return rewritten


def _rewritten(
    path: Path, write: Callable[[Path, Path, Mapping[str, float]], bool], erased: Mapping[str, float]
) -> bool:
    partial = path.with_name(f".{path.name}.partial")
    try:
        found = write(path, partial, erased)
        if found:
            os.replace(partial, path)
        return found
    finally:
        partial.unlink(missing_ok=True)


def _without_in_segment(path: Path, target: Path, erased: Mapping[str, float]) -> bool:
    found = False
    with path.open("rb") as lines, target.open("wb") as kept:
        for line in lines:
            if _is_erased(line, erased):
                found = True
            else:
                kept.write(line)
        kept.flush()
        os.fsync(kept.fileno())
    return found


def _is_erased(line: bytes, erased: Mapping[str, float]) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False  # no reader takes it either
    if not isinstance(row, dict):
        return False
    ids = [row.get(_USER), row.get("unit_id") if row.get("unit_type") == _USER else None]
    at = row.get("timestamp")
    moment = float(at) if isinstance(at, int | float) else 0.0
    return any(one is not None and moment <= erased.get(digest(one), float("-inf")) for one in ids)


def _without_in_parquet(path: Path, target: Path, erased: Mapping[str, float]) -> bool:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE erased (digest VARCHAR, moment DOUBLE)")
        connection.executemany("INSERT INTO erased VALUES (?, ?)", [list(pair) for pair in erased.items()])
        source = f"read_parquet('{_escaped(path)}')"
        kinds = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE FROM {source}").fetchall()}
        time = "epoch(timestamp)" if kinds["timestamp"].startswith("TIMESTAMP") else "timestamp::DOUBLE"
        ids = [_USER] if _USER in kinds else []
        if {"unit_id", "unit_type"} <= kinds.keys():
            ids.append(f"CASE WHEN unit_type = '{_USER}' THEN unit_id END")
        gone = " OR ".join(
            f"EXISTS (SELECT 1 FROM erased WHERE digest = sha256(({one})::VARCHAR) AND {time} <= moment)"
            for one in ids
        )
        if not ids:
            return False
        row = connection.execute(f"SELECT count(*) FROM {source} WHERE {gone}").fetchone()
        if not row or not row[0]:
            return False
        connection.execute(
            f"COPY (SELECT * FROM {source} WHERE NOT coalesce({gone}, false)) TO '{_escaped(target)}' (FORMAT PARQUET)"
        )
        return True


def _escaped(path: Path) -> str:
    return str(path).replace("'", "''")


def _done(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / DONE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # then every file is searched
    return found if isinstance(found, dict) else {}


def _note(folder: Path, done: Mapping[str, str]) -> None:
    partial = folder / f"{DONE}.partial"
    partial.write_text(json.dumps(done), encoding="utf-8")
    os.replace(partial, folder / DONE)
