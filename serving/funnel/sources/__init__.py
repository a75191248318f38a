"""Candidate sources. Importing this package registers the built-in ones."""

from __future__ import annotations

from serving.funnel.sources import memory, remote
from serving.funnel.stages import SOURCES

for _name, _config, _implementation in (*memory.MEMBERS, *remote.MEMBERS):
    SOURCES.register(_name, _config, _implementation)
