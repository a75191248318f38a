"""What goes wrong on a cluster and is no fault of the input."""

from __future__ import annotations

from easyrec.errors import EasyRecError


class ServerLostError(EasyRecError):
    """A parameter server, and with it a part of the weights, is gone: go on from the last checkpoint."""
