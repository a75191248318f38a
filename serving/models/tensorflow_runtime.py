"""Serving with TensorFlow's C library: the signatures of the SavedModel."""

from __future__ import annotations

from pathlib import Path

from easyrec.export.layout import MODEL
from easyrec.export.manifest import Manifest
from easyrec.export.runtime import Runtime
from easyrec.export.savedmodel import load_runtime


def load(folder: Path, manifest: Manifest, threads: int) -> Runtime:
    """The SavedModel of a bundle; see `serving.models.runtimes.load_runtime`."""
    return load_runtime(folder / MODEL, manifest, threads)
