"""Puts experiments into an application."""

from __future__ import annotations

from fastapi import FastAPI

from easyrec.errors import ConfigError
from evaluation.abtest.exposures import ExposureLog
from evaluation.abtest.pseudonyms import Pseudonyms
from evaluation.errors import EvaluationError
from serving.experiments.exposing import Exposures
from serving.experiments.live import LiveExperiments
from serving.experiments.routes import router
from serving.service import Service
from serving.settings import EXPOSURES, Settings


def install_experiments(app: FastAPI, settings: Settings) -> None:
    """Adds the routes and, where a file of experiments is given, the experiments.

    Args:
        app: The application, with `app.state.service`.
        settings: Of the service.

    Raises:
        ConfigError: The file is refused, the log cannot be written, or its key is too short.
    """
    app.include_router(router)
    if settings.experiments is None:
        return
    service: Service = app.state.service
    live = LiveExperiments(settings.experiments, service, service.clock)
    try:
        log = ExposureLog(settings.data / EXPOSURES)
        exposures = Exposures(log, Pseudonyms.from_environment())
    except EvaluationError as error:
        raise ConfigError(str(error)) from error
    app.state.experiments, app.state.exposures = live, exposures
    service.recommender.assigner = live
    service.recommender.observers.append(exposures)
    service.attach(_Helper(live, log))


class _Helper:
    """Begins and ends with the service."""

    def __init__(self, live: LiveExperiments, log: ExposureLog) -> None:
        self._live = live
        self._log = log

    def start(self) -> None:
        """Begins to watch the file."""
        self._live.start()

    def stop(self) -> None:
        """Ends watching, and writes what waits."""
        self._live.stop()
        self._log.close()
