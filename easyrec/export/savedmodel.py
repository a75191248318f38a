"""The model of a bundle, from its SavedModel. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from easyrec.errors import BundleError
from easyrec.export.manifest import Manifest
from easyrec.export.native.session import Session
from easyrec.export.runtime import Functions, Runtime


def load_runtime(folder: Path, manifest: Manifest, threads: int | None = None) -> Runtime:
    """The SavedModel of a bundle.

    Args:
        folder: The SavedModel.
        manifest: Of the bundle.
        threads: That one call may use; all cores unless given. The first model of a process decides for all.

    Raises:
        BundleError: It cannot be loaded, or lacks a signature.
    """
    functions = load_functions(folder, manifest.signatures, threads)
    return Runtime(functions, manifest.inputs, manifest.encoded, manifest.tasks)


def load_functions(folder: Path, signatures: Sequence[str], threads: int | None = None) -> Functions:
    """The signatures of a SavedModel, see `load_runtime`.

    Raises:
        BundleError: It cannot be loaded, or lacks a signature.
    """
    session = Session(folder, threads)
    absent = [name for name in signatures if name not in session.signatures]
    if absent:
        raise BundleError(f"the model in {folder} lacks the signatures {', '.join(absent)}")
    return {name: session.function(name) for name in signatures}
