"""`create_app(settings)`: the FastAPI application. There are no globals; everything hangs on `app.state.service`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from easyrec import __version__
from serving.api import events, health, items, models, problems, recommend, users
from serving.api.reference import install_reference
from serving.assignment import Assigner
from serving.experiments.install import install_experiments
from serving.operations.install import install_operations
from serving.security.install import install_security
from serving.service import Service
from serving.settings import Settings
from serving.ui.routes import install_page

ROUTERS = (recommend.router, events.router, items.router, users.router, models.router, health.router)


def create_app(settings: Settings, assigner: Assigner | None = None) -> FastAPI:
    """The application.

    Models are loaded here, so that a bundle that fails verification ends the process before it listens.

    Args:
        settings: All settings.
        assigner: Assigns requests to experiments; none unless given.

    Raises:
        EasyRecError: A model, the store or a scene cannot be used.
    """
    service = Service(settings, assigner)
    app = FastAPI(
        title="EasyRec",
        version=__version__,
        description="Recommendations from a bundle.",
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.service = service
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    install_experiments(app, settings)
    install_reference(app)
    install_page(app)
    install_security(app, settings.security)
    install_operations(app, settings.operations)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await asyncio.to_thread(service.start)
    if not gc.get_freeze_count():
        # What was imported stays. Left to the garbage collector, it would look through all of it again and again, with
        # every request waiting.
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        await asyncio.to_thread(service.stop)
