"""The store of several machines: Redis, with plain data types and one round trip a request.

events:{owner}     sorted set of events by time              marks:{owner}    sorted set `item type` by time
served:{owner}     sorted set of items by time               profile:{user}   hash: columns, and when it was erased
event:{id}         that an event is known                    items            hash of changed items
items:order        sorted set of items by version            items:version    counter
erased:            sorted set of digests by time        takings:          hash of what each process has counted

An event begins with when it came, so that those of one time keep their order. What people did has a lifetime; columns
of users, and items, stay until they are deleted. A key lives on with each new event, so what is too old in it is not
read, and taken out when the next event comes: to look through all keys would cost more than they take.
"""

from __future__ import annotations

import json
import time as clocks
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis

from serving.stores.base import (
    HISTORY,
    SEEN,
    TAKINGS_SECONDS,
    Behaviour,
    Entry,
    ItemChange,
    Mark,
    Record,
    Served,
    StoreError,
    Takings,
    digest,
    owner,
    owners,
    readable,
    takings_from,
)

TIMEOUT_SECONDS = 0.25
"""How long an answer is waited for."""
DAYS = 90
_DAY = 86_400
_SEPARATOR = "\x1f"
_NUMBER = 20
"""Digits that an event begins with."""
_KINDS = (("events", HISTORY), ("marks", SEEN), ("served", SEEN))
"""What people did, and how much of it is kept of each."""


class RedisStore:
    """See the module.

    Args:
        url: Such as `redis://localhost:6379/0`.
        prefix: What all keys start with.
        days: Lifetime of what is known of a person that is not met again, in days.
        timeout: Seconds that an answer is waited for.
    """

    def __init__(
        self, url: str, prefix: str = "easyrec:", days: float = DAYS, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._prefix = prefix
        self._seconds = max(1, int(days * _DAY))
        self._since: float | str = "-inf"
        with self._errors():
            self._redis = redis.Redis.from_url(
                url, decode_responses=True, socket_timeout=timeout, socket_connect_timeout=timeout
            )

    def read(self, user_id: str | None, session_id: str | None, history: int = HISTORY) -> Record:
        """See `Store.read`."""
        keys = owners(user_id, session_id)
        with self._errors():
            pipe = self._redis.pipeline(transaction=False)
            for key in keys:
                for kind, most in _KINDS:
                    name = self._key(kind, key)
                    pipe.zrevrangebyscore(name, "+inf", self._since, start=0, num=most, withscores=True)
            pipe.hmget(self._key("profile", user_id or ""), "columns", "erased")
            *found, (columns, erased) = pipe.execute()
        ordered = sorted((row for part in found[0::3] for row in part), key=lambda row: (row[1], row[0]))
        events = list({one.event_id: one for one in readable(ordered, _behaviour)}.values())
        marks = [(*name.rsplit(_SEPARATOR, 1), time) for part in found[1::3] for name, time in part]
        served = [Mark(item, "", time) for part in found[2::3] for item, time in part]
        return Record(
            tuple(events[-history:]) if history else (),
            tuple(sorted((Mark(*mark) for mark in marks), key=lambda mark: -mark.time)),
            tuple(sorted(served, key=lambda mark: -mark.time)),
            next(iter(readable([columns] if columns and user_id is not None else [], json.loads)), None),
            float(erased) if erased and user_id is not None else None,
        )

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """See `Store.known_events`."""
        if not event_ids:
            return set()
        with self._errors():
            found = self._redis.mget([self._key("event", event_id) for event_id in event_ids])
        return {event_id for event_id, known in zip(event_ids, found, strict=True) if known is not None}

    def append(self, entries: Sequence[Entry]) -> None:
        """See `Store.append`."""
        known = self.known_events([entry.behaviour.event_id for entry in entries])
        sessions: dict[tuple[str, str], None] = {}
        with self._errors():
            pipe = self._redis.pipeline(transaction=True)
            for number, entry in enumerate(entries, clocks.time_ns()):
                if entry.user_id is not None and entry.session_id is not None:
                    sessions[entry.session_id, entry.user_id] = None
                if entry.behaviour.event_id not in known:
                    known.add(entry.behaviour.event_id)
                    self._append(pipe, entry, number)
            pipe.execute()
        for session_id, user_id in sessions:
            self.merge(session_id, user_id)

    def _append(self, pipe: Any, entry: Entry, number: int) -> None:
        one, key = entry.behaviour, owner(entry.user_id, entry.session_id)
        text = f"{number:0{_NUMBER}d}" + _json(
            [one.event_id, one.type, one.item_id, one.value, one.properties]
        )
        pipe.set(self._key("event", one.event_id), 1, ex=self._seconds)
        self._mark(pipe, "events", key, {text: one.time}, HISTORY)
        if one.item_id is not None:
            self._mark(pipe, "marks", key, {f"{one.item_id}{_SEPARATOR}{one.type}": one.time})

    def _mark(self, pipe: Any, kind: str, key: str, times: Mapping[str, float], most: int = SEEN) -> None:
        name = self._key(kind, key)
        pipe.zadd(name, dict(times), gt=True)
        self._trim(pipe, name, most)

    def _trim(self, pipe: Any, name: str, most: int) -> None:
        """Takes out what is too much, or too old."""
        pipe.zremrangebyrank(name, 0, -most - 1)
        pipe.zremrangebyscore(name, "-inf", f"({self._since}")
        pipe.expire(name, self._seconds)

    def add_served(self, served: Sequence[Served]) -> None:
        """See `Store.add_served`."""
        with self._errors():
            pipe = self._redis.pipeline(transaction=False)
            for one in served:
                if one.item_ids:
                    times = dict.fromkeys(one.item_ids, one.time)
                    self._mark(pipe, "served", owner(one.user_id, one.session_id), times)
            pipe.execute()

    def put_profile(self, user_id: str, columns: Mapping[str, Any]) -> None:
        """See `Store.put_profile`."""
        with self._errors():
            self._redis.hset(self._key("profile", user_id), "columns", _json(columns))

    def merge(self, session_id: str, user_id: str) -> None:
        """See `Store.merge`."""
        session, user = owner(None, session_id), owner(user_id, None)
        with self._errors():
            pipe = self._redis.pipeline(transaction=True)
            for kind, most in _KINDS:
                names = [self._key(kind, user), self._key(kind, session)]
                pipe.zunionstore(names[0], names, aggregate="MAX")
                self._trim(pipe, names[0], most)
                pipe.delete(names[1])
            pipe.execute()

    def erase(self, user_id: str, time: float) -> None:
        """See `Store.erase`."""
        key = owner(user_id, None)
        with self._errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.delete(*(self._key(kind, key) for kind, _ in _KINDS))
            profile = self._key("profile", user_id)
            pipe.hdel(profile, "columns")
            pipe.hset(profile, "erased", repr(time))
            pipe.zadd(self._key("erased", ""), {digest(user_id): time})
            pipe.execute()

    def erased_since(self, time: float) -> dict[str, float]:
        """See `Store.erased_since`."""
        with self._errors():
            found: Any = self._redis.zrangebyscore(self._key("erased", ""), time, "+inf", withscores=True)
        return {str(name): float(moment) for name, moment in found}

    def put_item(self, change: ItemChange) -> int:
        """See `Store.put_item`."""
        with self._errors():
            version = int(self._redis.incr(self._key("items", "version")))
            body = [change.columns, change.available, change.time, version]
            pipe = self._redis.pipeline(transaction=True)
            pipe.hset(self._key("items", ""), change.item_id, _json(body))
            pipe.zadd(self._key("items", "order"), {change.item_id: version})
            pipe.execute()
        return version

    def item(self, item_id: str) -> ItemChange | None:
        """See `Store.item`."""
        with self._errors():
            body = self._redis.hget(self._key("items", ""), item_id)
        return next(iter(readable([] if body is None else [str(body)], partial(_change, item_id))), None)

    def items_since(self, version: int) -> list[ItemChange]:
        """See `Store.items_since`."""
        with self._errors():
            found = self._redis.zrangebyscore(self._key("items", "order"), f"({version}", "+inf")
            names = [str(name) for name in found]
            bodies = self._redis.hmget(self._key("items", ""), names) if names else []
        rows = [(name, str(body)) for name, body in zip(names, bodies, strict=True) if body is not None]
        return readable(rows, lambda row: _change(*row))

    def put_takings(self, process: str, takings: Takings) -> None:
        """See `Store.put_takings`."""
        name = self._key("takings", "")
        far = [one for one, of in self.takings().items() if abs(of.time - takings.time) > TAKINGS_SECONDS]
        with self._errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hset(name, process, _json([takings.time, takings.counts]))
            if far:
                pipe.hdel(name, *far)
            pipe.expire(name, int(TAKINGS_SECONDS))
            pipe.execute()

    def takings(self) -> dict[str, Takings]:
        """See `Store.takings`."""
        with self._errors():
            rows: Any = self._redis.hgetall(self._key("takings", ""))
        return dict(readable(rows.items(), _takings))

    def prune(self, before: float) -> None:
        """See `Store.prune` and the module."""
        self._since = before

    def ping(self) -> None:
        """See `Store.ping`."""
        with self._errors():
            self._redis.ping()

    def close(self) -> None:
        """See `Store.close`."""
        self._redis.close()

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}:{name}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError, ValueError) as error:
            raise StoreError(f"Redis cannot be used: {error}") from error


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _behaviour(row: tuple[str, float]) -> Behaviour:
    event_id, kind, item_id, value, properties = json.loads(row[0][_NUMBER:])
    return Behaviour(event_id, kind, item_id, row[1], value, properties)


def _takings(row: tuple[str, str]) -> tuple[str, Takings]:
    return row[0], takings_from(*json.loads(row[1]))


def _change(item_id: str, body: str) -> ItemChange:
    columns, available, time, version = json.loads(body)
    return ItemChange(item_id, columns, available, time, version)
