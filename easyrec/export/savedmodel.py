"""The signatures of a SavedModel as functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.errors import BundleError
from easyrec.export.manifest import Manifest
from easyrec.export.runtime import ENCODE_USER, SCORE, Functions, Runtime

Arrays = dict[str, npt.NDArray[Any]]
_OFTEN = (ENCODE_USER, SCORE)
"""Called in each request."""


@dataclass(frozen=True)
class ArrayFunction:
    """A TensorFlow function called with NumPy arrays as keyword arguments, which returns such arrays.

    Attributes:
        function: Takes tensors by name and returns them by name.
        model: What the function reads its variables from; kept, since a signature alone would not keep them.
    """

    function: Callable[..., Mapping[str, Any]]
    model: Any = None

    def __call__(self, **arrays: npt.NDArray[Any]) -> Arrays:
        """Calls the function; text is arrays of objects."""
        tensors = {
            name: tf.constant(array, tf.string if array.dtype == np.object_ else None)
            for name, array in arrays.items()
        }
        return {name: value.numpy() for name, value in self.function(**tensors).items()}


def load_runtime(folder: Path, manifest: Manifest) -> Runtime:
    """The SavedModel of a bundle.

    Args:
        folder: The SavedModel.
        manifest: Of the bundle.

    Raises:
        BundleError: It cannot be loaded, or lacks a signature.
    """
    functions = load_functions(folder, manifest.signatures)
    return Runtime(functions, manifest.inputs, manifest.encoded, manifest.tasks)


def load_functions(folder: Path, signatures: Sequence[str]) -> Functions:
    """The signatures of a SavedModel.

    Raises:
        BundleError: It cannot be loaded, or lacks a signature.
    """
    try:
        model = tf.saved_model.load(folder)
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise BundleError(f"the model in {folder} cannot be loaded: {error}") from error
    absent = [name for name in signatures if name not in model.signatures]
    if absent:
        raise BundleError(f"the model in {folder} lacks the signatures {', '.join(absent)}")
    return {
        name: ArrayFunction(
            _by_position(model.signatures[name]) if name in _OFTEN else model.signatures[name], model
        )
        for name in signatures
    }


def _by_position(signature: Any) -> Callable[..., Mapping[str, Any]]:
    """A signature that takes its many inputs by position inside, for binding keywords costs as much as computing."""
    specs = signature.structured_input_signature[1]
    names = sorted(specs)

    def call(*tensors: tf.Tensor) -> Mapping[str, tf.Tensor]:
        found: Mapping[str, tf.Tensor] = signature(**dict(zip(names, tensors, strict=True)))
        return found

    given = [specs[name] for name in names]
    concrete = tf.function(call, input_signature=given, autograph=False).get_concrete_function()
    return lambda **tensors: concrete(*(tensors[name] for name in names))
