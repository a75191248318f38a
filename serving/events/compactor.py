"""Runs compaction now and then, in a process of its own, so that it costs requests no time and keeps no memory."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

logger = logging.getLogger(__name__)

STORE = "EASYREC_STORE"
"""The variable that tells the process of the store."""
_NICE = 10


class Compactor:
    """See the module.

    Args:
        folder: The folder of the event log.
        exposures: The folder of the exposure log, from which erased users go as well; it may be missing.
        minutes: How often.
        late_minutes: How long after its hour an impression waits for events.
        store: As in the settings; one that machines share says who was erased on the others.
    """

    def __init__(
        self, folder: Path, exposures: Path, minutes: float, late_minutes: float, store: str
    ) -> None:
        self._command = [
            sys.executable, "-m", "serving.events.compaction", str(folder), "--late-minutes", str(late_minutes),
            "--exposures", str(exposures),
        ]  # fmt: skip
        self._environment = {**os.environ, STORE: store}  # not on the command line: it may hold a password
        self._seconds = minutes * 60
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what is being compacted is done again another time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._compact()
            except OSError as error:
                logger.error("events cannot be compacted: %s", error)

    def _compact(self) -> None:
        with subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=self._environment,
        ) as process:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
            while process.poll() is None:
                if self._stopping.wait(0.2):
                    process.terminate()
                    break
            errors = process.stderr.read() if process.stderr is not None else b""
        if process.returncode and not self._stopping.is_set():
            logger.error("compaction failed: %s", errors.decode(errors="replace")[-2000:])
