"""Serving with TensorFlow: the signatures of the SavedModel."""

from __future__ import annotations

import logging
from pathlib import Path

import tensorflow as tf

from easyrec.export.layout import MODEL
from easyrec.export.manifest import Manifest
from easyrec.export.runtime import Runtime
from easyrec.export.savedmodel import load_runtime

_LOG = logging.getLogger(__name__)


def load(folder: Path, manifest: Manifest, threads: int) -> Runtime:
    """The SavedModel of a bundle; see `serving.models.runtimes.load_runtime`."""
    _set_threads(threads)
    return load_runtime(folder / MODEL, manifest)


def _set_threads(threads: int) -> None:
    """Threads of the process; they cannot change once TensorFlow has begun to work."""
    settings = tf.config.threading
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(threads)
    except RuntimeError:
        if settings.get_intra_op_parallelism_threads() != threads:
            _LOG.warning(
                "TensorFlow has begun to work with %d threads already; they stay",
                settings.get_intra_op_parallelism_threads(),
            )
