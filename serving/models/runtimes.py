"""What computes: the SavedModel with TensorFlow's C library, or its LiteRT form without."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from easyrec.errors import BundleError
from easyrec.export.layout import LITERT
from easyrec.export.litert.engine import available
from easyrec.export.manifest import Manifest
from easyrec.export.runtime import Runtime

RuntimeName = Literal["tensorflow", "litert"]
RuntimeChoice: TypeAlias = Literal["auto", "tensorflow", "litert"]
Loader = Callable[[Path, Manifest, int], Runtime]

# By import path, because a process that serves with one must not import the other.
_LOADERS: dict[RuntimeName, str] = {
    "tensorflow": "serving.models.tensorflow_runtime:load",
    "litert": "serving.models.litert_runtime:load",
}


def load_runtime(
    folder: Path, manifest: Manifest, choice: RuntimeChoice, threads: int
) -> tuple[str, Runtime]:
    """The model of a bundle, ready to compute.

    Args:
        folder: The bundle.
        manifest: Its manifest.
        choice: Which runtime; `auto` takes LiteRT where the bundle and this machine have it.
        threads: Threads that one call may use.

    Returns:
        The name of the runtime, and the model.

    Raises:
        BundleError: The bundle has no such model, or it cannot be loaded.
    """
    if choice not in get_args(RuntimeChoice):
        raise BundleError(f"runtime must be one of {', '.join(get_args(RuntimeChoice))}, got {choice!r}")
    name: RuntimeName = (
        choice
        if choice != "auto"
        else "litert"
        if available() and (folder / LITERT).is_dir()
        else "tensorflow"
    )
    module, _, function = _LOADERS[name].partition(":")
    loader: Loader = getattr(importlib.import_module(module), function)
    return name, loader(folder, manifest, threads)
