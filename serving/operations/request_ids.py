"""A name for each request: in its answer, in every line of the log, in the trace, and in the event log."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from contextvars import ContextVar

HEADER = "X-Request-Id"
_ALLOWED = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

_current: ContextVar[str | None] = ContextVar("request_id", default=None)
_own: ContextVar[str | None] = ContextVar("own_request_id", default=None)


def current_request_id() -> str | None:
    """The id of the request that is being answered, or None outside of one."""
    return _current.get()


def new_request_id() -> str:
    """A name for a list that is about to be made: that of the HTTP request, unless the caller has named that.

    A caller may give the same X-Request-Id to all that it asks for while it answers one request of its own; what is
    shown and what is done about it have to be joined by a name that occurs once.
    """
    return _own.get() or secrets.token_hex(12)


@contextlib.contextmanager
def request_named(given: str | None) -> Iterator[str]:
    """Names the request that is answered inside of the block; after it, nothing of the name is left.

    Args:
        given: What the caller calls it; anything that could confuse a log is replaced by a name made up.
    """
    named = given is not None and _ALLOWED.fullmatch(given) is not None
    request_id = given if given is not None and named else secrets.token_hex(12)
    current, own = _current.set(request_id), _own.set(None if named else request_id)
    try:
        yield request_id
    finally:
        _own.reset(own)
        _current.reset(current)
