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


def of_a_shard(error: BaseException | None) -> bool:
    """Whether a function failed because of the shard it read, and not because somebody was lost."""
    missing = isinstance(error, tf.errors.NotFoundError) and "No such file" in str(error)
    return missing or isinstance(error, _DAMAGE)
