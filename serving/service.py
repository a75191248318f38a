"""The service as one object: models, scenes, people, events. `create_app` builds one; nothing is global.

What operations, pages and experiments need hangs on it: `recommender.observers` see every answer with its trace,
`recommender.assigner` says which experiments apply, `writer.state` and `hub.versions()` say how things stand.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from easyrec.errors import ConfigError, EasyRecError
from easyrec.export.layout import find_bundle
from serving.assignment import Assigner, NoExperiments
from serving.background import Follower, Helper, Upkeep, helpers
from serving.events.log import EventLog
from serving.events.writer import EventWriter, OverloadedError
from serving.funnel.items import NewItems, Tables
from serving.funnel.scenes import Scenes
from serving.funnel.stages import Resources
from serving.funnel.trends import Trends
from serving.items import ItemKeeper
from serving.models.decisions import Decisions
from serving.models.hub import ModelHub
from serving.models.served import ServedModel, load_served_model
from serving.models.shadow import ShadowLog
from serving.people.people import People
from serving.recommender import Answer, Recommender, Request
from serving.settings import Settings
from serving.shared_trends import SharedTrends
from serving.stores.guard import GuardedStore
from serving.stores.open import open_store

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Service:
    """See the module.

    Args:
        settings: All settings.
        assigner: Assigns requests to experiments; none unless given.
        clock: Seconds since 1970.

    Raises:
        EasyRecError: A model, the store or a scene cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        assigner: Assigner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.started = clock()
        for path in settings.models:  # a misspelt one must not leave an empty folder of data behind
            find_bundle(path)
        settings.data.mkdir(parents=True, exist_ok=True)
        self.store = GuardedStore(open_store(settings))
        self.hub = ModelHub(
            functools.partial(
                load_served_model,
                runtime=settings.runtime,
                threads=settings.threads,
                search=settings.search,
            )
        )
        tables, trends = Tables(), Trends(ignored_types=settings.events.not_history)
        self.resources = Resources(tables, trends, NewItems(tables, clock))
        self.items = ItemKeeper(self.hub, self.store, self.resources.new_items, clock)
        self.hub.add_listener(self._prepare)
        models = [self.hub.load_now(path) for path in settings.models]
        _require_names(models)
        _require_catalogue(models[0])
        self.items.primary = models[0].name
        log = EventLog(settings.data / "events", settings.events.segment_mib << 20, settings.events.sync)
        self.writer = EventWriter(log, self.store, clock)
        self.writer.listeners.append(trends.add)
        self.scenes = Scenes(settings.scenes, models, self.resources)
        self.recommender = Recommender(
            self.hub,
            models[0].name,
            self.scenes,
            People(self.store, settings.events.not_history),
            self.writer,
            assigner or NoExperiments(),
            clock,
            settings.events.impressions,
            settings.events.item_features,
        )
        self.recommender.observers.append(self._offer_to_shadow)
        self._shadow_logs: dict[str, ShadowLog] = {}
        self.decisions = Decisions(settings.data / "models.json", self.hub, self.try_beside)
        self.decisions.follow()
        followers: list[Follower] = [self.decisions, self.items, SharedTrends(trends, self.store, clock)]
        upkeep = Upkeep(followers, self.store, settings.keep_days, clock)
        self._helpers = [upkeep, *helpers(settings, self.writer, self.hub, self.decisions)]
        self._executor = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="recommend")
        self._background = ThreadPoolExecutor(2, thread_name_prefix="background")
        self._waiting = 0
        self._stopping = threading.Event()

    def attach(self, helper: Helper) -> None:
        """Lets something with a thread of its own begin and end with the service."""
        self._helpers.append(helper)

    def start(self) -> None:
        """Replays what the store has missed, and begins to take events.

        Raises:
            EasyRecError: The event log cannot be read.
        """
        self.writer.start()
        for helper in self._helpers:
            helper.start()

    def stop(self) -> None:
        """Ends after everything that was begun; every accepted event is on disk."""
        self._stopping.set()
        sinks = [helper for helper in self._helpers if callable(helper)]  # those that events are passed to
        for helper in self._helpers:
            if helper not in sinks:
                helper.stop()
        self._executor.shutdown(wait=True)
        self._background.shutdown(wait=True)
        self.writer.stop()
        for helper in sinks:  # they pass on what was written to the last
            helper.stop()
        self.hub.close()
        for log in self._shadow_logs.values():
            log.close()
        self.store.store.close()

    @property
    def ready(self) -> bool:
        """Whether requests can be answered."""
        return bool(self.hub.names()) and not self._stopping.is_set()

    def status(self) -> Mapping[str, str]:
        """How the parts stand: `ok`, or what is wrong in a word."""
        return {
            "models": "ok" if self.hub.names() else "none",
            "store": "ok" if self.store.available else "unavailable",
            "events": "ok" if self.writer.state.error is None else "unavailable",
        }

    async def answer(self, request: Request) -> Answer:
        """Answers a request, off the event loop.

        Raises:
            OverloadedError: Too many are waiting.
            EasyRecError: See `Recommender.answer`.
        """
        if self._waiting >= self.settings.queue + self.settings.concurrency:
            raise OverloadedError("too many requests are waiting; try again in a moment")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            context = contextvars.copy_context()  # the request's id, for lines of the log
            return await loop.run_in_executor(self._executor, context.run, self.recommender.answer, request)
        finally:
            self._waiting -= 1

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls something that may block, off the event loop and not in the way of recommendations."""
        return await asyncio.get_running_loop().run_in_executor(self._background, function, *args)

    def try_beside(self, name: str, version: str, percent: float) -> None:
        """Lets a loaded version score a share of the requests, for the log only; 0 ends it.

        Raises:
            BundleError: The version is not loaded, or `percent` is no share.
        """
        before = self._shadow_logs.pop(name, None)
        if percent == 0:
            self.hub.clear_shadow(name)
        else:
            log = ShadowLog(self.settings.data / "shadow" / f"{name}.jsonl")
            self.hub.set_shadow(name, version, percent, log)
            self._shadow_logs[name] = log
        if before is not None:  # nothing writes to it any more
            before.close()

    def _offer_to_shadow(self, answer: Answer) -> None:
        shadow = self.hub.shadow(answer.query.model.name)
        if shadow is not None and len(answer.ranked):
            items = [item["item_id"] for item in answer.payload["items"]]
            shadow.offer(answer.trace.request_id, answer.query.columns().values, items)

    def _prepare(self, name: str, model: ServedModel) -> None:
        """Brings a model up to date before it serves."""
        try:
            _require_catalogue(model)
        except ConfigError:
            return  # it only predicts rows
        self.resources.tables.warm_up(model)
        self.items.bring_up_to_date(model)


def _require_names(models: Sequence[ServedModel]) -> None:
    paths: dict[str, Path] = {}
    for model in models:
        if model.name in paths:
            raise ConfigError(
                f"models: {paths[model.name]} and {model.folder} are both named {model.name!r}, so the second would "
                "replace the first; give one of the pipelines another `name`"
            )
        paths[model.name] = model.folder


def _require_catalogue(model: ServedModel) -> None:
    try:
        _ = model.catalogue
    except EasyRecError as error:
        raise ConfigError(f"{error}; serve a model that recommends as the first one") from error
