"""Where in which file each value of a configuration was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from easyrec.config.paths import Path, format_path
from easyrec.errors import Problem

SOURCE = "--set"
"""What stands in place of a file for values set on the command line."""


@dataclass(frozen=True)
class Location:
    """A place in a file.

    Attributes:
        file: Path of the file as it was given, or "--set" and the like for a value that is in no file.
        line: 1-based line, or None.
    """

    file: str
    line: int | None = None


class Locations:
    """Places by path into the configuration.

    Equal to any other, because two configurations are equal wherever they were written.
    """

    def __init__(self, places: Mapping[Path, Location] | None = None) -> None:
        self._places = dict(places or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Locations)

    __hash__ = None  # type: ignore[assignment]

    def at(self, path: Path) -> Location | None:
        """The place of a value, or of the nearest thing around it that was written."""
        for length in range(len(path), -1, -1):
            if place := self._places.get(path[:length]):
                return place
        return None

    def with_alias(self, new: Path, old: Path) -> Locations:
        """The same places, and those below `old` also under `new`: for entries that a pattern stands for."""
        moved = {
            new + path[len(old) :]: place for path, place in self._places.items() if path[: len(old)] == old
        }
        return Locations({**self._places, **moved})

    def problem(self, path: Path, message: str) -> Problem:
        """A problem with the value at `path`."""
        place = self.at(path)
        return Problem(
            format_path(path), message, place.file if place else None, place.line if place else None
        )


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems by file and line, each once; those in no file come first."""
    distinct = list(dict.fromkeys(problems))
    files = list(dict.fromkeys(problem.file for problem in distinct))
    return sorted(
        distinct, key=lambda problem: (problem.file is not None, files.index(problem.file), problem.line or 0)
    )
