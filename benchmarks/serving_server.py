"""`easyrec serve` for a benchmark: on a signal, the next bundle is loaded and becomes active.

python benchmarks/serving_server.py SETTINGS.json NEXT_BUNDLE
"""

from __future__ import annotations

import itertools
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from serving.app import create_app
from serving.settings import load_settings


def main() -> None:
    """Serves until it is ended."""
    logging.basicConfig(level=logging.WARNING)
    settings = load_settings(given=json.loads(Path(sys.argv[1]).read_text()))
    app = create_app(settings)
    hub = app.state.service.hub
    others = itertools.cycle([sys.argv[2], str(settings.models[0])])

    def swap(*_: Any) -> None:
        def load() -> None:
            begun = time.perf_counter()
            model = hub.load(next(others)).result()
            print(f"version {model.version} active after {time.perf_counter() - begun:.1f} s", flush=True)

        threading.Thread(target=load).start()

    signal.signal(signal.SIGUSR1, swap)
    uvicorn.run(app, host=settings.host, port=settings.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
