"""The few Protocol Buffers messages that the C API takes and that a SavedModel holds, as bytes.

Python classes of these messages come with TensorFlow's Python package only, which is not to be imported here. The wire
format and the numbers of fields never change: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Field: TypeAlias = tuple[int, "int | memoryview"]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class TensorInfo:
    """`TensorInfo`: what carries one input or output of a signature.

    Attributes:
        operation: Name of the operation.
        index: Which of its results.
        type: Number of the data type.
    """

    operation: str
    index: int
    type: int


@dataclass(frozen=True)
class SignatureDef:
    """`SignatureDef`: inputs and outputs of a signature, by name."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]


def signatures(saved_model: bytes) -> dict[str, SignatureDef]:
    """The signatures in a file `saved_model.pb`, by name.

    Raises:
        ValueError: It is no such file.
    """
    (graph,) = _all(memoryview(saved_model), 2)  # SavedModel.meta_graphs; Keras and tf.saved_model write one
    found = {}
    for name, definition in _mapping(graph, 5):  # MetaGraphDef.signature_def
        found[name] = SignatureDef(
            {key: _tensor_info(value) for key, value in _mapping(definition, 1)},
            {key: _tensor_info(value) for key, value in _mapping(definition, 2)},
        )
    return found


def varint(number: int, value: int) -> bytes:
    """A field with a whole number; negative ones are written as 64 bits."""
    return _varint(number << 3 | _VARINT) + _varint(value & (1 << 64) - 1)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _fields(message: memoryview) -> Iterator[Field]:
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, position = _read_varint(message, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"byte {position} begins no field")
        if position + size > len(message):
            raise ValueError("it ends within a field")
        yield key >> 3, message[position : position + size]
        position += size


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if position == len(message):
            raise ValueError("it ends within a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, position
    raise ValueError(f"the number before byte {position} has more than 64 bits")


def _all(message: memoryview, number: int) -> list[memoryview]:
    found = []
    for field, value in _fields(message):
        if field == number:
            if isinstance(value, int):
                raise ValueError(f"field {number} is a number")
            found.append(value)
    return found


def _mapping(message: memoryview, number: int) -> Iterator[tuple[str, memoryview]]:
    for entry in _all(message, number):
        parts = dict(_fields(entry))
        key, value = parts.get(1, memoryview(b"")), parts.get(2, memoryview(b""))
        if isinstance(key, int) or isinstance(value, int):
            raise ValueError(f"field {number} has a number where a name or message belongs")
        yield bytes(key).decode(), value


def _tensor_info(message: memoryview) -> TensorInfo:
    parts = dict(_fields(message))
    name, kind = parts.get(1), parts.get(2, 0)
    if name is None or isinstance(name, int) or not isinstance(kind, int):
        raise ValueError("a signature refers to something that is no tensor")
    operation, _, index = bytes(name).decode().partition(":")  # an operation without a result has no index
    return TensorInfo(operation, int(index or 0), kind)
