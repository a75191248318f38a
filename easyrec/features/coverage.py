"""What the features met in the data: how much was missing, unseen, cut, malformed."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class Coverage:
    """Sums of the counters of all features; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        self._totals: dict[str, dict[str, int]] = {}

    def add_report(self, report: Mapping[str, Mapping[str, float]]) -> None:
        """Adds what a `report` says of other rows."""
        counts = {
            (feature, name): int(value)
            for feature, entry in report.items()
            for name, value in entry.items()
            if name != "rows" and not name.endswith("_share")
        }
        self.add(max((int(entry["rows"]) for entry in report.values()), default=0), counts)

    def add(self, rows: int, counts: Mapping[tuple[str, str], int]) -> None:
        """Adds the counters of one chunk, by (feature, counter)."""
        with self._lock:
            self._rows += rows
            for (feature, counter), value in counts.items():
                totals = self._totals.setdefault(feature, {})
                totals[counter] = totals.get(counter, 0) + int(value)

    def report(self) -> dict[str, dict[str, float]]:
        """One entry a feature: `rows`, the counters, and the shares among them.

        `missing_share` is of rows; `unseen_share` is of the values that are not missing.
        """
        with self._lock:
            report: dict[str, dict[str, float]] = {}
            for feature, totals in self._totals.items():
                entry: dict[str, float] = {"rows": self._rows, **totals}
                values = totals.get("values", self._rows - totals.get("missing", 0))
                if self._rows:
                    entry["missing_share"] = totals.get("missing", 0) / self._rows
                if "unseen" in totals:
                    entry["unseen_share"] = totals["unseen"] / values if values else 0.0
                report[feature] = entry
            return report

    def warnings(self) -> list[str]:
        """Sentences about features that are missing or unseen throughout."""
        found = []
        for feature, entry in self.report().items():
            if entry.get("missing_share") == 1.0:
                found.append(f"feature {feature!r} is missing in all {self._rows} rows")
            elif entry.get("unseen_share") == 1.0:
                found.append(f"feature {feature!r} has only values that are not in its vocabulary")
        return found
