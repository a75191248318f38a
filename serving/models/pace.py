"""Work beside requests that leaves them most of the processor.

A thread of lower priority would not do: while it waits for the processor it would keep Python's interpreter lock, and
everybody else would wait with it. So the thread rests of its own accord, without the lock, in proportion to the time
it has worked. It is asked whether it is time to rest at each call and return of a function, of those in C too; no
function has to know. It does not rest within modules that have locks, which requests may need.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SHARE = 0.25
"""Of one processor, at most."""
_LOOK_SECONDS = 0.0005
_WORK_SECONDS = 0.001
_REST_SECONDS = 0.25
_SWITCH_SECONDS = 0.0005
# `functools` has one lock for a cached property of all instances of a class (until Python 3.12).
_LOCKING = {"functools", "importlib", "logging", "queue", "threading"}


def pacer(
    share: float = SHARE,
    rest: Callable[[float], None] = time.sleep,
    worked: Callable[[], float] = time.thread_time,
    clock: Callable[[], float] = time.perf_counter,
    beneath: FrameType | None = None,
) -> Callable[[FrameType | None, Any, Any], None]:
    """A function for `sys.setprofile` that has the thread that calls it rest when it is time to.

    Args:
        share: Of the time, at most, in which the thread works.
        rest: Rests for so many seconds.
        worked: Seconds that the thread has worked.
        clock: Seconds.
        beneath: What the thread called before it was paced; that of `threading` which began it has no lock.
    """
    resting = 1 / share - 1
    looked, since = clock(), worked()

    def look(frame: FrameType | None, event: Any, argument: Any) -> None:  # at every call, hence a closure
        nonlocal looked, since
        now = clock()
        if now - looked < _LOOK_SECONDS:
            return
        used = worked() - since
        if used >= _WORK_SECONDS and not _may_hold_a_lock(frame, beneath):
            rest(min(used * resting, _REST_SECONDS))
            since, now = worked(), clock()
        looked = now

    return look


def _may_hold_a_lock(frame: FrameType | None, beneath: FrameType | None) -> bool:
    while frame is not None and frame is not beneath:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LOCKING:
            return True
        frame = frame.f_back
    return False


@contextmanager
def paced(share: float = SHARE) -> Iterator[None]:
    """Paces the thread while it is inside of the block.

    Threads that want the interpreter lock ask for it after half a millisecond meanwhile, and not after five, Python's
    default, which are as long as an answer takes.
    """
    profile, interval = sys.getprofile(), sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    here = sys._getframe(2)  # the block's own; the nearest is that of `contextlib`
    sys.setprofile(pacer(share, beneath=here))
    try:
        yield
    finally:
        sys.setprofile(profile)
        sys.setswitchinterval(interval)
