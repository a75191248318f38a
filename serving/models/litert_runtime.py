"""Serving with LiteRT; TensorFlow is not imported."""

from __future__ import annotations

from pathlib import Path

from easyrec.export.layout import LITERT
from easyrec.export.litert.functions import load_runtime
from easyrec.export.manifest import Manifest
from easyrec.export.runtime import Runtime


def load(folder: Path, manifest: Manifest, threads: int) -> Runtime:
    """The LiteRT model of a bundle; see `serving.models.runtimes.load_runtime`."""
    return load_runtime(folder / LITERT, manifest, threads)
