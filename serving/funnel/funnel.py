"""One scene at work: candidates from the sources, filtered, ranked, re-ranked, and topped up when short.

A stage that fails or has no time left is passed over and named in the trace's `degraded`; only a request that is wrong
in itself is an error. Sources that may wait run beside each other, each in a thread of its own with its own deadline;
those that only read memory run meanwhile, one after another, because handing them over would cost more than they take.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from functools import partial

import numpy as np

from easyrec.errors import ConfigError, EasyRecError
from serving.funnel.calls import IsolatedCalls, RefusedError
from serving.funnel.candidates import Candidates, Found, Mask, merge
from serving.funnel.query import Query, RequestError
from serving.funnel.ranking import Ranking
from serving.funnel.scene import SceneConfig
from serving.funnel.stages import (
    FILTERS,
    RERANKERS,
    SOURCES,
    Filter,
    Reranker,
    Resources,
    Source,
    SourceConfig,
)
from serving.funnel.trace import Stage

logger = logging.getLogger(__name__)

_RESERVE_SECONDS = 0.005


class Funnel:
    """Runs a scene.

    Args:
        config: The scene.
        resources: What stages share.

    Raises:
        EasyRecError: A stage cannot be made from its configuration.
    """

    def __init__(self, config: SceneConfig, resources: Resources) -> None:
        self.config = config
        self._sources = {
            name: _SourceRunner(name, source, resources) for name, source in config.all_sources.items()
        }
        self._names = tuple(self._sources)
        self._fallback = {
            name: _SourceRunner(name, source, resources)
            for name, source in config.fallback.items()
            if source.enabled
        }
        self._filters: dict[str, tuple[Filter, bool]] = {
            name: (FILTERS.build(one, resources), one.soft)
            for name, one in config.filters.items()
            if one.enabled
        }
        self._ranking = Ranking(config.ranking)
        self._rerankers: dict[str, Reranker] = {
            name: RERANKERS.build(one, resources) for name, one in config.reranking.items() if one.enabled
        }

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, by the bits of `Candidates.masks`; fallbacks come after them."""
        return (*self._names, *(name for name in self._fallback if name not in self._names))

    @property
    def uses_served(self) -> bool:
        """Whether a filter asks what was served."""
        return any(one.type == "served" and one.enabled for one in self.config.filters.values())

    def check(self, query: Query) -> None:
        """Tries the stages that only read memory, so that a mistake in a scene shows when it is loaded.

        Args:
            query: A request of somebody unknown.

        Raises:
            ConfigError: A stage cannot work with this catalogue, or names a task that the model lacks.
        """
        few = Candidates.of_rows(np.arange(min(2, len(query.catalogue))))
        found = replace(few, found=np.full((len(self.sources), len(few)), np.nan, np.float32))
        query.trace.notes["sources"] = self.sources
        _tried("properties", partial(query.catalogue.table, found.rows, self.config.properties))
        for name, (one, _) in self._filters.items():
            _tried(f"filters.{name}", partial(one.keep, query, found.rows))
        for name, reranker in self._rerankers.items():
            _tried(f"reranking.{name}", partial(reranker.rerank, query, found))
        if self.config.ranking.enabled:
            _tried("ranking", partial(self._ranking.score, query, found))
        for family, runners in (("sources", self._sources), ("fallback", self._fallback)):
            for name, runner in runners.items():
                if not runner.remote:
                    _tried(f"{family}.{name}", partial(runner.find, query))

    def recommend(self, query: Query) -> Candidates:
        """The best items for a request, at most `query.n`.

        Raises:
            RequestError: The request is wrong in itself.
        """
        query.trace.notes["sources"] = self.sources
        if query.wanted is not None:
            candidates = Candidates.of_rows(query.wanted)
        else:
            candidates = self._merge(query, self._collect(query))
        candidates = self.filter(query, candidates)
        ranked = self.rerank(query, self.rank(query, candidates))
        if len(ranked) < query.n and query.wanted is None:
            ranked = self._top_up(query, ranked)
        ranked = ranked.take(
            query.model.catalogue.available[ranked.rows]
        )  # some may have been deleted meanwhile
        return ranked.take(slice(0, query.n))

    def rank(self, query: Query, candidates: Candidates) -> Candidates:
        """Candidates ordered by the model; as they are when it cannot, or knows nothing of the person."""
        if not self.config.ranking.enabled or not len(candidates):
            return candidates
        with query.trace.stage("ranking", query.model.name, len(candidates)) as stage:
            stage.returned = len(candidates)
            known = query.columns().known
            stage.notes["known"] = list(known)
            if not known:
                query.trace.fallback = "popularity"
                return self._by_popularity(query, candidates)
            if self._late(query, stage):
                return candidates
            try:
                return candidates.with_scores(self._ranking.score(query, candidates)).ordered()
            except RequestError:
                raise
            except Exception as error:  # noqa: BLE001 whatever a model does, the sources' order still answers
                self._broken(query, stage, error)
                return candidates

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """Ranked candidates after all re-rankers."""
        for name, reranker in self._rerankers.items():
            if not len(ranked):
                break
            with query.trace.stage("reranking", name, len(ranked)) as stage:
                if not self._late(query, stage):
                    try:
                        ranked = reranker.rerank(query, ranked)
                    except Exception as error:  # noqa: BLE001 a stage of a plug-in may fail in any way
                        self._broken(query, stage, error)
                stage.returned = len(ranked)
        return ranked

    def filter(self, query: Query, candidates: Candidates) -> Candidates:
        """Candidates that may be recommended; soft filters give way when fewer than `n` would be left."""
        soft: list[tuple[Stage, Mask]] = []
        keep = self._available(query, candidates)
        for name, (one, is_soft) in self._filters.items():
            with query.trace.stage("filter", name, int(keep.sum())) as stage:
                try:
                    allowed = np.asarray(one.keep(query, candidates.rows), bool)
                except Exception as error:  # noqa: BLE001 a stage of a plug-in may fail in any way
                    self._broken(query, stage, error)
                    allowed = np.ones(len(keep), bool)
                stage.dropped = candidates.rows[keep & ~allowed]
                if is_soft:
                    soft.append((stage, allowed))
                else:
                    keep &= allowed
                stage.returned = int((keep & allowed).sum())
        for stage, allowed in soft:
            if int((keep & allowed).sum()) >= min(query.n, int(keep.sum())):
                keep &= allowed
            else:
                stage.notes["gave_way"] = True
                stage.dropped, stage.returned = stage.dropped[:0], stage.received
        return candidates.take(keep)

    def _available(self, query: Query, candidates: Candidates) -> Mask:
        """Drops what was deleted or excluded by the request."""
        with query.trace.stage("filter", "available", len(candidates)) as stage:
            available = query.model.catalogue.available  # as it is now: an item may just have been deleted
            rows = candidates.rows
            keep = (
                available[rows] if len(available) > rows.max(initial=-1) else query.catalogue.available[rows]
            )
            if len(query.excluded):
                keep = keep & ~np.isin(rows, query.excluded)
            stage.dropped, stage.returned = rows[~keep], int(keep.sum())
            return np.array(keep)

    def _collect(self, query: Query) -> list[tuple[int, Found, int, float]]:
        """What the sources find, in their order."""
        pending = {name: runner.start(query) for name, runner in self._sources.items() if runner.remote}
        parts = []
        for number, runner in enumerate(self._sources.values()):
            if not runner.remote:
                parts.append((number, runner.run(query), runner.config.n, runner.config.weight))
        for number, (name, runner) in enumerate(self._sources.items()):
            if runner.remote:
                found = runner.wait(query, pending[name])
                parts.append((number, found, runner.config.n, runner.config.weight))
        return sorted(parts, key=lambda part: part[0])

    def _merge(self, query: Query, parts: list[tuple[int, Found, int, float]]) -> Candidates:
        with query.trace.stage(
            "merge", self.config.merge.by, sum(len(part[1].rows) for part in parts)
        ) as stage:
            # An item may have been put since this request began; it has to wait for the next one.
            size = len(query.catalogue)
            parts = [
                (number, Found(np.where(found.rows < size, found.rows, -1), found.scores), quota, weight)
                for number, found, quota, weight in parts
            ]
            merged = merge(parts, len(self.sources), self.config.merge.by, self.config.merge.limit)
            stage.returned = len(merged)
        return merged

    def _top_up(self, query: Query, ranked: Candidates) -> Candidates:
        """Items of the fallbacks behind the ranked ones, until there are enough."""
        names = self.sources
        for name, runner in self._fallback.items():
            found = runner.start_and_wait(query) if runner.remote else runner.run(query, "fallback")
            number = names.index(name)
            more = merge([(number, found, runner.config.n, 1.0)], len(names), limit=runner.config.n)
            more = self.filter(query, more.take(~np.isin(more.rows, ranked.rows)))
            more = more.take(slice(0, query.n - len(ranked)))
            if len(more):
                query.trace.fallback = query.trace.fallback or name
                ranked = _joined(ranked, more)
            if len(ranked) >= query.n:
                break
        return ranked

    def _by_popularity(self, query: Query, candidates: Candidates) -> Candidates:
        """The order for somebody unknown: that of the sources, which know no more than what is popular."""
        if query.wanted is None:
            return candidates
        recent = query.catalogue.popularity[1][candidates.rows]
        return candidates.with_scores(recent.astype(np.float32)).ordered()

    def _late(self, query: Query, stage: Stage) -> bool:
        if query.seconds_left > _RESERVE_SECONDS:
            return False
        stage.problem = "no time was left"
        query.trace.degrade(f"{stage.kind}.{stage.name}" if stage.kind != "ranking" else "ranking")
        return True

    def _broken(self, query: Query, stage: Stage, error: Exception) -> None:
        stage.problem = f"{type(error).__name__}: {error}"
        query.trace.degrade(f"{stage.kind}.{stage.name}" if stage.kind != "ranking" else "ranking")
        log = logger.warning if isinstance(error, EasyRecError) else logger.exception
        log("request %s: %s %s failed: %s", query.trace.request_id, stage.kind, stage.name, error)


class _SourceRunner:
    """Runs one source; see `Funnel`."""

    def __init__(self, name: str, config: SourceConfig, resources: Resources) -> None:
        self.name = name
        self.config = config
        self._source: Source = SOURCES.build(config, resources)
        self.remote: bool = getattr(self._source, "remote", True)
        self._calls: IsolatedCalls[Found] = IsolatedCalls()

    def run(self, query: Query, kind: str = "source") -> Found:
        """What the source finds; nothing when it fails."""
        with query.trace.stage(kind, self.name) as stage:
            try:
                found = self._source.find(query)
            except RequestError:
                raise
            except Exception as error:  # noqa: BLE001 one source of many
                self._fail(query, stage, error)
                found = Found.nothing()
            stage.returned = len(found.rows)
        return found

    def find(self, query: Query) -> Found:
        """What the source finds, faults and all."""
        return self._source.find(query)

    def start(self, query: Query) -> tuple[float, Future[Found] | RefusedError]:
        """Begins to ask it; the time it began, and what will come of it."""
        begun = time.monotonic()
        try:
            return begun, self._calls.start(lambda: self._source.find(query))
        except RefusedError as refusal:
            return begun, refusal

    def start_and_wait(self, query: Query) -> Found:
        """Asks it and waits until its deadline."""
        return self.wait(query, self.start(query))

    def wait(self, query: Query, started: tuple[float, Future[Found] | RefusedError]) -> Found:
        """What it has found by its deadline; nothing when it fails or is late."""
        begun, future = started
        with query.trace.stage("source", self.name) as stage:
            due = min(begun + self.config.deadline_ms / 1000, query.deadline - _RESERVE_SECONDS)
            try:
                if isinstance(future, RefusedError):
                    raise future
                found = future.result(max(0.0, due - time.monotonic()))
            except RefusedError as refusal:
                self._fail(query, stage, refusal)
                return Found.nothing()
            except FutureTimeout:
                self._calls.failed()
                self._fail(query, stage, EasyRecError("it did not answer before its deadline"))
                return Found.nothing()
            except Exception as error:  # noqa: BLE001 one source of many
                self._calls.failed()
                self._fail(query, stage, error)
                return Found.nothing()
            self._calls.succeeded()
            stage.returned = len(found.rows)
        stage.milliseconds = (time.monotonic() - begun) * 1000
        return found

    def _fail(self, query: Query, stage: Stage, error: BaseException) -> None:
        stage.problem = f"{type(error).__name__}: {error}"
        query.trace.degrade(f"source.{self.name}")
        logger.warning(
            "request %s: the source %s failed: %s", query.trace.request_id, self.name, stage.problem
        )


def _tried(place: str, stage: Callable[[], object]) -> None:
    try:
        stage()
    except EasyRecError as error:
        raise ConfigError(f"{place}: {error}") from error
    except Exception as error:  # a stage of a plug-in may fail in any way
        raise ConfigError(f"{place}: {type(error).__name__}: {error}") from error


def _joined(first: Candidates, second: Candidates) -> Candidates:
    """The second ones behind the first; they carry no score of the model."""
    if first.found.shape[0] != second.found.shape[0]:
        first = replace(first, found=np.full((second.found.shape[0], len(first)), np.nan, np.float32))
    return Candidates(
        np.concatenate([first.rows, second.rows]),
        np.concatenate([first.scores, np.full(len(second), np.nan, np.float32)]),
        np.concatenate([first.masks, second.masks]),
        np.concatenate([first.found, second.found], axis=1),
    )
