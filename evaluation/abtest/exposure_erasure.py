"""Forgetting users in an exposure log.

Rows go as a whole, like the events of these users: a row without its id would stay a unit that did nothing, and no
assignment could be replayed from it. Segments that still grow are left alone until they are sealed.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposures import SEALED
from evaluation.abtest.pseudonyms import KEY, PREFIX, Pseudonyms, digest

DONE = ".erased.json"
"""Which files were searched for which erasures, so that a large log is not read again and again."""
SESSION = "session:"
"""What the digest of an anonymous session begins with, for sessions that turned out to be those of erased users."""
_USER = "user_id"
_ANONYMOUS = "session_id"
_NO_KEY = f"it names users by keyed hashes, and ${KEY} is not the key"


def erase_users(
    directory: str | os.PathLike[str], erased: Mapping[str, float], pseudonyms: Pseudonyms | None = None
) -> int:
    """Remove the rows of erased users: those with their `user_id`, and those whose unit they are.

    Rows of sessions without a user go as well if the session is among `erased`, under `SESSION` and its digest.

    Each file is written anew beside the old one and takes its place at once. What an erased user saw later stays.

    Args:
        directory: Of the log; it may be missing.
        erased: When each user was erased, seconds since 1970, by `evaluation.abtest.pseudonyms.digest`.
        pseudonyms: Of the key under which the log was written; a log of keyed names cannot be searched without.

    Returns:
        Number of files that held such rows.

    Raises:
        ExperimentDataError: A file cannot be read or written; the others are done.
    """
    folder = Path(directory)
    if not erased or not folder.is_dir():
        return 0
    if pseudonyms is not None:
        erased = {**erased, **{_hidden(name, pseudonyms): moment for name, moment in erased.items()}}
    wanted = digest(sorted(erased.items()))
    done = _done(folder)
    rewritten, problems = 0, []
    for suffix, write in ((".parquet", _without_in_parquet), (SEALED, _without_in_segment)):
        for path in sorted(folder.glob(f"**/*{suffix}")):
            name = str(path.relative_to(folder))
            if done.get(name) == wanted:
                continue
            try:
                rewritten += _rewritten(path, write, erased, pseudonyms.prefix if pseudonyms else "")
                done[name] = wanted
            except FileNotFoundError:
                continue  # compaction has just turned it into Parquet, which is searched next time
            except (OSError, duckdb.Error, ExperimentDataError) as error:
                problems.append(f"{path}: {error}")
    _note(folder, {name: mark for name, mark in done.items() if (folder / name).exists()})
    if problems:
        raise ExperimentDataError(
            f"Erased users may remain in {len(problems)} files of the exposure log: {'; '.join(problems)}"
        )
    return rewritten


def _hidden(name: str, pseudonyms: Pseudonyms) -> str:
    session = SESSION if name.startswith(SESSION) else ""
    return session + pseudonyms.of_digest(name.removeprefix(SESSION))


def _rewritten(
    path: Path,
    write: Callable[[Path, Path, Mapping[str, float], str], bool],
    erased: Mapping[str, float],
    prefix: str,
) -> bool:
    partial = path.with_name(f".{path.name}.partial")
    try:
        found = write(path, partial, erased, prefix)
        if found:
            os.replace(partial, path)
        return found
    finally:
        partial.unlink(missing_ok=True)


def _without_in_segment(path: Path, target: Path, erased: Mapping[str, float], prefix: str) -> bool:
    found = False
    with path.open("rb") as lines, target.open("wb") as kept:
        for line in lines:
            if _is_erased(line, erased, prefix):
                found = True
            else:
                kept.write(line)
        kept.flush()
        os.fsync(kept.fileno())
    return found


def _is_erased(line: bytes, erased: Mapping[str, float], prefix: str) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False  # no reader takes it either
    if not isinstance(row, dict):
        return False
    session = row.get(_ANONYMOUS) if row.get(_USER) is None else None
    ids = [row.get(_USER), row.get("unit_id") if row.get("unit_type") == _USER else None, session]
    at = row.get("timestamp")
    moment = float(at) if isinstance(at, int | float) else 0.0
    known = [str(one) for one in ids if one is not None]
    names = [one if one.startswith(PREFIX) else digest(one) for one in known]
    if session is not None:
        names[-1] = SESSION + names[-1]
    if any(one.startswith(PREFIX) and not one.startswith(prefix or "-") for one in known):
        raise ExperimentDataError(_NO_KEY)
    return any(moment <= erased.get(name, float("-inf")) for name in names)


def _without_in_parquet(path: Path, target: Path, erased: Mapping[str, float], prefix: str) -> bool:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE erased (digest VARCHAR, moment DOUBLE)")
        connection.executemany("INSERT INTO erased VALUES (?, ?)", [list(pair) for pair in erased.items()])
        source = f"read_parquet('{_escaped(path)}')"
        kinds = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE FROM {source}").fetchall()}
        time = "epoch(timestamp)" if kinds["timestamp"].startswith("TIMESTAMP") else "timestamp::DOUBLE"
        ids = [_USER] if _USER in kinds else []
        if {"unit_id", "unit_type"} <= kinds.keys():
            ids.append(f"CASE WHEN unit_type = '{_USER}' THEN unit_id END")
        if _ANONYMOUS in kinds:
            ids.append(f"CASE WHEN {_USER} IS NULL THEN {_ANONYMOUS} END" if _USER in kinds else _ANONYMOUS)
        if not ids:
            return False
        texts = [f"({one})::VARCHAR" for one in ids]
        before = ["" if _ANONYMOUS not in one else f"'{SESSION}' || " for one in ids]
        strange = " OR ".join(
            f"starts_with({text}, '{PREFIX}') AND NOT starts_with({text}, '{prefix or '-'}')"
            for text in texts
        )
        if connection.execute(f"SELECT 1 FROM {source} WHERE {strange} LIMIT 1").fetchone():
            raise ExperimentDataError(_NO_KEY)
        gone = " OR ".join(
            f"EXISTS (SELECT 1 FROM erased WHERE {time} <= moment AND digest = {start}"
            f"CASE WHEN starts_with({text}, '{PREFIX}') THEN {text} ELSE sha256({text}) END)"
            for text, start in zip(texts, before, strict=True)
        )
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
