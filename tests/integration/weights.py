"""What a run has learned, for comparison."""

import json
from pathlib import Path


def weights(run: Path) -> dict[str, str]:
    """Checksums of all weights and optimizer slots in the last checkpoint of a run."""
    last = max((run / "checkpoints").glob("step-*"))
    arrays = json.loads((last / "manifest.json").read_text())["arrays"]
    return {name: entry["sha256"] for name, entry in arrays.items()}
