"""What can go wrong, as one small tree.

    EasyRecError(ValueError)
    ├── InputError             what was given is wrong: exit code 2
    │   ├── ConfigError        the YAML, an override, an option or a plug-in
    │   ├── DataError          a file, row or column
    │   │   └── SchemaError    the data do not fit what the configuration says of them
    │   ├── CheckpointError    a checkpoint is missing, damaged or of another model
    │   └── BundleError        a bundle is missing, damaged or of another version
    └── TrainingError          training cannot start or go on

Every message says what is wrong, where, the value received, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class EasyRecError(ValueError):
    """Root of all errors that EasyRec raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(EasyRecError):
    """What was given is wrong: the same command on the same files fails again, whenever it is run."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One line of an error report.

    Attributes:
        path: Dotted path in the configuration (`training.epochs`), or "" for the whole file.
        message: What is wrong, the value received, the nearest right one, what to do.
        file: The file the value came from, or None for an override or a Python object.
        line: 1-based line in `file`.
    """

    path: str
    message: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else self.file if self.line is None else f"{self.file}:{self.line}"
        return "  ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(InputError):
    """The configuration is wrong; all problems found are listed, one line each."""

    def __init__(self, problems: str | Iterable[Problem]) -> None:
        self.problems = [Problem("", problems)] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[Problem]]]:
        return type(self), (self.problems,)


class DataError(InputError):
    """A file, row or column cannot be used."""


class SchemaError(DataError):
    """The data do not fit what the configuration says of them."""


class TrainingError(EasyRecError):
    """Training cannot start or go on."""


class CheckpointError(InputError):
    """A checkpoint is missing, damaged or belongs to another model."""


class BundleError(InputError):
    """A bundle is missing, damaged or written by an incompatible version."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest of `known`, or lists them when none is close.

    Args:
        name: What was received.
        known: What would have been right.

    Returns:
        " Did you mean 'x'?" or " Known: a, b, c." (at most 12 shown), or "" when nothing is known.
    """
    names = sorted(set(known))
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    if close:
        return f" Did you mean {by_folded[close[0]]!r}?"
    if not names:
        return ""
    return f" Known: {', '.join(names[:12])}{', ...' if len(names) > 12 else '.'}"
