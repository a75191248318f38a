"""NumPy arrays as tensors of the C library, and back; values are copied."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.export.native.c_api import Library

STRING = 7
"""`TF_STRING`; arrays of objects here, which are bytes."""
_STRING_BYTES = 24
"""Size of a `TF_TString`."""
_DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in {
        1: "float32",
        2: "float64",
        3: "int32",
        4: "uint8",
        5: "int16",
        6: "int8",
        9: "int64",
        10: "bool",
    }.items()
}
# By NumPy's own number of a type, which is found in a fraction of the time that hashing the type takes.
_NUMBERS = {dtype.num: number for number, dtype in _DTYPES.items()} | {np.dtype(np.object_).num: STRING}
_NUMBERS |= {np.dtype("longlong").num: 9}


def to_tensor(library: Library, array: npt.NDArray[Any], number: int) -> int:
    """A new tensor with the values of an array; `give_back` deletes it.

    Args:
        library: The library.
        array: Numbers, or objects that are text.
        number: Of the data type that the tensor must have (`TF_DataType`).

    Raises:
        TypeError: The array has another type, or an object is not text.
    """
    if _NUMBERS.get(array.dtype.num) != number:
        raise TypeError(f"it takes {_DTYPES.get(number, 'text')}, got {array.dtype}")
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    if number == STRING:
        return _to_strings(library, array, dims)
    array = np.asarray(array, order="C")
    size = array.nbytes
    tensor: int = library.TF_AllocateTensor(number, dims, array.ndim, size)
    if size:
        ctypes.memmove(library.TF_TensorData(tensor), array.ctypes.data, size)
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


def give_back(library: Library, tensor: int, number: int) -> None:
    """Deletes a tensor of `to_tensor`, and its strings, which the library does not know to be somebody's.

    Results of a call may be the same memory: read them before.
    """
    if number == STRING:
        data, free = library.TF_TensorData(tensor), library.TF_StringDealloc
        for offset in range(0, library.TF_TensorByteSize(tensor), _STRING_BYTES):
            free(data + offset)
    library.TF_DeleteTensor(tensor)


def _to_strings(library: Library, array: npt.NDArray[Any], dims: Any) -> int:
    values = [value if type(value) is bytes else _bytes(value) for value in array.ravel().tolist()]
    tensor: int = library.TF_AllocateTensor(STRING, dims, array.ndim, len(values) * _STRING_BYTES)
    text, begin, copy = library.TF_TensorData(tensor), library.TF_StringInit, library.TF_StringCopy
    for value in values:
        begin(text)
        copy(text, value, len(value))
        text += _STRING_BYTES
    return tensor


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"text is str or bytes, got {value!r}")
    return value.encode()
