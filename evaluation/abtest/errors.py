"""Errors of experiments: every problem of a file at once, each with its place."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.errors import DataError, EvaluationError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file of experiments.

    Attributes:
        message: What is wrong and what would be right.
        path: Keys from the top of the file, joined by dots.
        file: The file's name; empty for a configuration made in Python.
        line: Line in the file, from 1; None if unknown.
    """

    message: str
    path: str = ""
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """``experiments.yaml:12: experiments.din.variants: ...``, as editors and terminals link it."""
        place = f"{self.file}:{self.line}" if self.file and self.line is not None else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ExperimentConfigError(EvaluationError):
    """A configuration of experiments that is refused, with all problems found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ExperimentDataError(DataError):
    """Logs that cannot be analysed; the message names the column, the rows and what to do."""
