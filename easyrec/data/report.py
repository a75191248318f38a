"""How many rows were read, used, left out and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from easyrec.data.readers.base import Faults


@dataclass
class PassReport:
    """One pass over the rows of one part of the data.

    Attributes:
        rows_read: Rows that came from the files.
        rows_used: Rows handed on, sampled negatives not counted.
        dropped: Rows left out, by reason.
        unmatched: Rows whose key the user or item table lacks, by side; their columns are missing.
        negatives: Sampled rows added.
        weight: Sum of the sample weights, where there are any.
        complete: Whether the pass went to the end.
        epoch: Whether it was an epoch of training: in random order, with sampled negatives where configured.
    """

    rows_read: int = 0
    rows_used: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    unmatched: Counter[str] = field(default_factory=Counter)
    negatives: int = 0
    weight: float = 0.0
    complete: bool = False
    epoch: bool = False

    def drop(self, reason: str, rows: int) -> None:
        """Counts rows that are left out."""
        if rows:
            self.dropped[reason] += rows

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rows_read": self.rows_read,
            "rows_used": self.rows_used,
            "dropped": dict(self.dropped),
            "unmatched": dict(self.unmatched),
            "negatives": self.negatives,
        }


@dataclass
class DataReport:
    """What happened to the data of a pipeline.

    Attributes:
        parts: The latest complete pass over `train` and `eval`.
        faults: What could not be read and was skipped, by source.
        notes: What else a reader should know: casts, columns that hide others.
    """

    parts: dict[str, PassReport] = field(default_factory=dict)
    faults: dict[str, Faults] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Adds a note once."""
        if text and text not in self.notes:
            self.notes.append(text)

    def left_out(self) -> list[str]:
        """Sentences about rows and files that were read and not used."""
        lines = []
        for name, part in self.parts.items():
            if part.dropped:
                reasons = "; ".join(f"{reason} ({rows:,})" for reason, rows in part.dropped.most_common())
                lines.append(
                    f"{name}: {part.dropped.total():,} of {part.rows_read:,} rows were left out: {reasons}"
                )
        for name, faults in self.faults.items():
            for count, what in ((faults.rows, "row"), (faults.files, "file")):
                if count:
                    many = f"{count:,} {what}s that" if count > 1 else f"a {what} that"
                    first = f": {faults.examples[0]}" if faults.examples else ""
                    lines.append(f"{name}: left out {many} could not be read{first}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{name: part.as_dict() for name, part in self.parts.items()},
            "bad_rows": {name: faults.rows for name, faults in self.faults.items() if faults.rows},
            "bad_files": {name: faults.files for name, faults in self.faults.items() if faults.files},
            "examples": [example for faults in self.faults.values() for example in faults.examples],
            "notes": list(self.notes),
        }
