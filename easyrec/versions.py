"""Versions of Python and of the libraries that decide results: for bundles and reports."""

from __future__ import annotations

import importlib.metadata
import platform

from easyrec import __version__

LIBRARIES = ("tensorflow", "keras", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """Versions by name, this package's first."""
    installed = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"easyrec": __version__, "python": platform.python_version(), **installed}
