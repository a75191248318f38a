"""Buckets for experiments that ask for a percentage, written into the file so that they never move again."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.abtest.errors import ExperimentConfigError, Problem
from evaluation.abtest.hashing import BUCKETS
from evaluation.abtest.loading import parse_experiments
from evaluation.abtest.yaml_source import Source, read_source

Segments = list[tuple[int, int]]


@dataclass(frozen=True)
class Allocation:
    """What an experiment got.

    Attributes:
        experiment: Its name.
        before: Buckets it had.
        after: Buckets it has now; what it had is among them.
    """

    experiment: str
    before: Segments
    after: Segments


def allocate(path: str | os.PathLike[str]) -> tuple[str, list[Allocation]]:
    """Turn `percent` into `segments` for all experiments of a file that hold traffic.

    Buckets are only appended: those that stand under `segments` stay, and the lowest free ones of the layer are
    added until the percentage is reached. The rest of the text, comments included, is kept.

    Args:
        path: The file; it is not written.

    Returns:
        The new text, and what changed. The text is a valid configuration.

    Raises:
        ExperimentConfigError: The layer has too few free buckets, an experiment has more than the percentage already,
            or the file is wrong in another way.
    """
    source = read_source(path)
    experiments = source.value.get("experiments") if isinstance(source.value, dict) else None
    changes, problems = [], []
    taken: dict[Any, set[int]] = {}
    entries = [
        (name, one)
        for name, one in (experiments or {}).items()
        if isinstance(one, dict) and one.get("algorithm") != "growthbook-v2"
    ]
    for _, one in entries:
        if one.get("status", "draft") != "draft" and not (
            one.get("status") == "stopped" and one.get("released")
        ):
            taken.setdefault(one.get("layer"), set()).update(_buckets(_segments(one)))
    for name, one in entries:
        percent = one.get("percent")
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not 0 <= percent <= 100:
            continue  # validation of the new text says what is wrong with it
        before = _segments(one)
        got = _grow(before, round(percent * BUCKETS / 100), taken.setdefault(one.get("layer"), set()))
        if isinstance(got, str):
            problems.append(source.problem(("experiments", name, "percent"), got))
        else:
            changes.append(Allocation(name, before, got))
    if problems:
        raise ExperimentConfigError(problems)
    text = _edited(source, changes)
    parse_experiments(text, file=str(path))
    return text, changes


def write_allocation(path: str | os.PathLike[str], text: str) -> None:
    """Replace the file at once."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, target)
    except OSError as error:
        raise ExperimentConfigError([Problem(f"cannot be written: {error}", file=str(path))]) from error
    finally:
        partial.unlink(missing_ok=True)


def _segments(one: dict[str, Any]) -> Segments:
    given = one.get("segments")
    pairs = given if isinstance(given, list) else []
    usable = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    return [(start, end) for start, end in usable if isinstance(start, int) and isinstance(end, int)]


def _buckets(segments: Iterable[tuple[int, int]]) -> set[int]:
    return {bucket for start, end in segments for bucket in range(max(start, 0), min(end, BUCKETS))}


def _grow(before: Segments, wanted: int, taken: set[int]) -> Segments | str:
    mine = _buckets(before)
    missing = wanted - len(mine)
    if missing < 0:
        return f"is less than the {len(mine) / 100:g} percent it has; traffic only grows within a phase"
    free = [bucket for bucket in range(BUCKETS) if bucket not in taken]
    if len(free) < missing:
        return f"needs {missing} more buckets, and its layer has {len(free)} free"
    added = free[:missing]
    taken.update(added)
    return [*before, *_runs(added)] if before else _runs(added)


def _runs(buckets: list[int]) -> Segments:
    runs: Segments = []
    for bucket in buckets:
        if runs and runs[-1][1] == bucket:
            runs[-1] = (runs[-1][0], bucket + 1)
        else:
            runs.append((bucket, bucket + 1))
    return runs


def _edited(source: Source, changes: list[Allocation]) -> str:
    text = source.text
    edits = []
    for one in changes:
        written = f"segments: {[list(pair) for pair in one.after]}"
        percent = source.spans["experiments", one.experiment, "percent"]
        edits.append((percent.start, percent.end, written))
        old = source.spans.get(("experiments", one.experiment, "segments"))
        if old is not None:
            edits.append((old.start, _after(text, old.end), ""))
    for start, end, written in sorted(edits, reverse=True):
        text = text[:start] + written + text[end:]
    return text


def _after(text: str, end: int) -> int:
    """Where the next key begins: what stands between (a comma, or a line's end and indentation) goes too."""
    while end < len(text) and text[end] in ", \n":
        end += 1
    return end
