"""Events from and to Redis streams: the same validator and the same log as over HTTP.

An entry of the stream holds an event as JSON in its field `event`, or the event's own fields. It is acknowledged when
the event is durable; one that is refused goes to `<stream>:rejected` with the reason. Several services share the work
as consumers of the group `easyrec`; what one has taken and not acknowledged when it died, it takes again when it starts
under the same name, or another takes over after a minute.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import redis

from easyrec.errors import ConfigError
from serving.events.event import parse_events
from serving.events.writer import EventWriter

logger = logging.getLogger(__name__)

GROUP = "easyrec"
DEFAULT_STREAM = "events"
_BATCH = 500
_WAIT_MILLISECONDS = 500
_TAKE_OVER_MILLISECONDS = 60_000
_RETRY_SECONDS = 1.0


def open_stream(url: str) -> tuple[Any, str]:
    """A client and the name of a stream.

    Args:
        url: Such as `redis://localhost:6379/0?stream=events`.

    Raises:
        ConfigError: It is no such URL.
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    name = options.get("stream", [DEFAULT_STREAM])[0]
    try:
        client = redis.Redis.from_url(
            urlunsplit(parts._replace(query="")),
            decode_responses=True,
            encoding_errors="replace",  # an entry that is no text is refused like any other mistake
            socket_timeout=5.0,
        )
    except ValueError as error:
        raise ConfigError(f"a stream is written redis://host:port/0?stream=name: {error}") from error
    return client, name


class StreamIntake:
    """Reads events from a stream.

    Args:
        url: See `open_stream`.
        writer: Writes them.
        consumer: Name of this reader in the group.
    """

    def __init__(self, url: str, writer: EventWriter, consumer: str | None = None) -> None:
        self._redis, self._stream = open_stream(url)
        self._writer = writer
        self._consumer = consumer or f"{socket.gethostname()}-{os.getpid()}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream-intake", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after what was read is durable."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._redis.close()

    def _run(self) -> None:
        ready = False
        while not self._stopping.is_set():
            try:
                ready = ready or self._join()
                self._take(self._claimed() or self._read())
            except Exception as error:  # noqa: BLE001 whatever it is, the next try must come
                logger.warning("events cannot be read from the stream %s: %s", self._stream, error)
                ready = False
                self._stopping.wait(_RETRY_SECONDS)

    def _join(self) -> bool:
        try:
            self._redis.xgroup_create(self._stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # the group is there
                raise
        own = self._redis.xreadgroup(GROUP, self._consumer, {self._stream: "0"}, count=_BATCH)
        self._take(own[0][1] if own else [])
        return True

    def _claimed(self) -> list[tuple[str, Mapping[str, str] | None]]:
        """What others took long ago and never acknowledged."""
        found = self._redis.xautoclaim(
            self._stream, GROUP, self._consumer, min_idle_time=_TAKE_OVER_MILLISECONDS, count=_BATCH
        )
        return list(found[1])

    def _read(self) -> list[tuple[str, Mapping[str, str] | None]]:
        found = self._redis.xreadgroup(
            GROUP, self._consumer, {self._stream: ">"}, count=_BATCH, block=_WAIT_MILLISECONDS
        )
        return list(found[0][1]) if found else []

    def _take(self, entries: Sequence[tuple[str, Mapping[str, str] | None]]) -> None:
        if not entries:
            return
        values = [_value(fields or {}) for _, fields in entries]  # one that was cut off the stream has none
        events, rejected = parse_events(values)
        if events:
            self._writer.write([event for _, event in events]).result()
        pipe = self._redis.pipeline(transaction=False)
        for index, reason in rejected:
            fields = {"reason": reason, "entry": json.dumps(dict(entries[index][1] or {}))}
            pipe.xadd(f"{self._stream}:rejected", fields, maxlen=10_000, approximate=True)
        pipe.xack(self._stream, GROUP, *(entry_id for entry_id, _ in entries))
        pipe.execute()


def _value(fields: Mapping[str, str]) -> Any:
    """The event in an entry: JSON in the field `event`, else the fields themselves."""
    if "event" not in fields:
        return dict(fields)
    try:
        value = json.loads(fields["event"])
    except (ValueError, RecursionError):
        return fields["event"]
    if isinstance(value, dict):  # as another service of this kind passes them on
        value.pop("kind", None)
        value.pop("received", None)
    return value
