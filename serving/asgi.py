"""The application for ASGI servers that start it themselves: `uvicorn --factory serving.asgi:create`.

Settings come from the file that `EASYREC_CONFIG` names and from variables `EASYREC_...`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path

from fastapi import FastAPI

from easyrec.errors import EasyRecError
from serving.app import create_app
from serving.operations.logs import configure_logs
from serving.settings import PREFIX, Settings, load_settings

logger = logging.getLogger(__name__)

RESOLVED = f"{PREFIX}SETTINGS"
"""Holds complete settings as JSON, from `easyrec serve` to its worker processes."""
CONFIG = f"{PREFIX}CONFIG"
STARTED = f"{PREFIX}STARTED"
"""A file that the first worker process of `easyrec serve` makes once it can serve."""


def create() -> FastAPI:
    """The application.

    Raises:
        SystemExit: The settings are wrong, or a model, the store or a scene cannot be used; the log says what.
    """
    started = os.environ.get(STARTED)
    try:
        settings = settings_from_environment()
        configure_logs(settings.operations)
        app = create_app(settings)
    except (
        EasyRecError
    ) as error:  # a server that starts its workers again would repeat a whole trace each time
        logger.error("the service cannot start: %s", error)
        if started is not None and not Path(started).exists():  # none ever will; do not try for ever
            os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(error.exit_code) from None
    if started is not None:
        Path(started).touch()
    return app


def settings_from_environment() -> Settings:
    """Complete settings from `EASYREC_SETTINGS`, else from a file and variables."""
    resolved = os.environ.get(RESOLVED)
    if resolved is not None:
        return load_settings(given=json.loads(resolved), environment={})
    return load_settings(os.environ.get(CONFIG))
