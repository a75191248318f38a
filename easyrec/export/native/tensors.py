"""NumPy arrays as tensors of the C library, and back; values are copied."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.export.native.library import Library

STRING = 7
"""`TF_STRING`; arrays of objects here, which are bytes."""
_STRING_BYTES = 24
"""Size of a `TF_TString`."""
_TYPES: dict[np.dtype[Any], int] = {
    np.dtype(name): number
    for name, number in {
        "float32": 1,
        "float64": 2,
        "int32": 3,
        "uint8": 4,
        "int16": 5,
        "int8": 6,
        "int64": 9,
        "bool": 10,
    }.items()
}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}


def type_number(dtype: np.dtype[Any]) -> int:
    """Number of a data type in the C API (`TF_DataType`).

    Raises:
        TypeError: TensorFlow has no such type.
    """
    if dtype == np.object_:
        return STRING
    if dtype not in _TYPES:
        raise TypeError(f"TensorFlow takes no arrays of {dtype}")
    return _TYPES[dtype]


def to_tensor(library: Library, array: npt.NDArray[Any]) -> int:
    """A new tensor with the values of an array; `give_back` deletes it.

    Raises:
        TypeError: TensorFlow has no such type, or an object is not text.
    """
    number = type_number(array.dtype)
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    if number == STRING:
        return _to_strings(library, array, dims)
    array = np.asarray(array, order="C")
    tensor: int = library.TF_AllocateTensor(number, dims, array.ndim, array.nbytes)
    if array.nbytes:
        ctypes.memmove(library.TF_TensorData(tensor), array.ctypes.data, array.nbytes)
    return tensor


def from_tensor(library: Library, tensor: int) -> npt.NDArray[Any]:
    """An array with the values of a tensor."""
    shape = tuple(library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor)))
    number, size = library.TF_TensorType(tensor), library.TF_TensorByteSize(tensor)
    data = library.TF_TensorData(tensor)
    if number == STRING:
        values = np.empty(size // _STRING_BYTES, np.object_)
        for place in range(len(values)):
            text = data + place * _STRING_BYTES
            values[place] = ctypes.string_at(
                library.TF_StringGetDataPointer(text), library.TF_StringGetSize(text)
            )
        return values.reshape(shape)
    array = np.empty(shape, _DTYPES[number])
    if size:
        ctypes.memmove(array.ctypes.data, data, size)
    return array


def give_back(library: Library, tensor: int) -> None:
    """Deletes a tensor of `to_tensor`, and its strings, which the library does not know to be somebody's.

    Results of a call may be the same memory: read them before.
    """
    if library.TF_TensorType(tensor) == STRING:
        data = library.TF_TensorData(tensor)
        for offset in range(0, library.TF_TensorByteSize(tensor), _STRING_BYTES):
            library.TF_StringDealloc(data + offset)
    library.TF_DeleteTensor(tensor)


def _to_strings(library: Library, array: npt.NDArray[Any], dims: Any) -> int:
    values = [value.encode() if isinstance(value, str) else value for value in array.ravel().tolist()]
    for value in values:
        if not isinstance(value, bytes):
            raise TypeError(f"text is str or bytes, got {value!r}")
    tensor: int = library.TF_AllocateTensor(STRING, dims, array.ndim, len(values) * _STRING_BYTES)
    data = library.TF_TensorData(tensor)
    for place, value in enumerate(values):
        text = data + place * _STRING_BYTES
        library.TF_StringInit(text)
        library.TF_StringCopy(text, value, len(value))
    return tensor
