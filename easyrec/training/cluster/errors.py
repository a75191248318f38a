"""What goes wrong on a cluster and is no fault of the input."""

from __future__ import annotations

import re

import tensorflow as tf

from easyrec.errors import EasyRecError

# What a shard that is damaged, cut off or gone makes of a function that reads it.
_DAMAGE = (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError)
_TROUBLE = re.compile(
    r"failed to connect to all addresses|[Cc]onnection (reset|refused|timed out)|[Ss]ocket closed"
)

_FORGOTTEN = re.compile(r"[Uu]nable to find the relevant tensor remote_handle|[Uu]nknown device")


class ServerLostError(EasyRecError):
    """A parameter server, and with it a part of the weights, is gone: go on from the last checkpoint."""


def lost(error: BaseException | None) -> ServerLostError:
    """What an error of TensorFlow says about who was lost, in one line."""
    text = str(error)
    server = re.search(r"/job:(ps|worker)/replica:0/task:(\d+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if re.search(r"connect|[Uu]navailable|not found|reset", line)), "")
    brief = _TROUBLE.search(reason)
    what = brief[0] if brief else (reason or (lines[0] if lines else type(error).__name__))[:200]
    return ServerLostError(f"{server[1]} {server[2]} does not answer ({what})" if server else what)


def to_be_done_again(error: BaseException | None) -> bool:
    """Whether what failed is to be done again and nothing else is wrong: another one failed, or a worker was lost.

    The coordinator itself does again what a worker was at. It does not where the worker had done it, and was lost
    before its answer, which lay there, had been fetched; or was started again before that, and knows nothing of it.
    """
    if isinstance(error, tf.errors.CancelledError):
        return True
    text = str(error)
    if "/job:worker" not in text or "remote target /job:ps" in text:
        return False
    gone = isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError))
    return gone or (isinstance(error, tf.errors.InvalidArgumentError) and bool(_FORGOTTEN.search(text)))


def of_a_shard(error: BaseException | None) -> bool:
    """Whether a function failed because of the shard it read, and not because somebody was lost."""
    missing = isinstance(error, tf.errors.NotFoundError) and "No such file" in str(error)
    return missing or isinstance(error, _DAMAGE)
