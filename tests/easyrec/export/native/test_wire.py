"""Messages as bytes are what Protocol Buffers itself reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from easyrec.export.native.wire import TensorInfo, signatures, varint


def message_type() -> Any:
    """A message with one number, field 1000."""
    file = descriptor_pb2.FileDescriptorProto(name="number.proto", package="oracle", syntax="proto3")
    message = file.message_type.add(name="Number")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="value", number=1000, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("oracle.Number"))


NUMBER = message_type()


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_is_read_by_protocol_buffers(value: int) -> None:
    assert NUMBER.FromString(varint(1000, value)).value == value


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("saved")
    module = tf.Module()
    function = tf.function(
        lambda a, b: {"one": a + 1.0, "two": tf.strings.length(b)},
        input_signature=[tf.TensorSpec([], name="a"), tf.TensorSpec([None], tf.string, name="b")],
    )
    tf.saved_model.save(module, folder, {"both": function.get_concrete_function()})
    return Path(folder, "saved_model.pb").read_bytes()


def test_signatures_are_found(saved: bytes) -> None:
    both = signatures(saved)["both"]
    assert set(both.inputs) == {"a", "b"}
    assert both.inputs["a"] == TensorInfo("both_a", 0, 1)
    assert both.inputs["b"] == TensorInfo("both_b", 0, 7)
    assert {name: info.type for name, info in both.outputs.items()} == {"one": 1, "two": 3}
    assert {info.operation for info in both.outputs.values()} == {"PartitionedCall"}
    assert sorted(info.index for info in both.outputs.values()) == [0, 1]


@given(st.data())
def test_damaged_bytes_are_refused_or_read_but_nothing_else_happens(
    saved: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(saved)))
    noise = data.draw(st.binary(max_size=20))
    damaged = saved[:cut] + noise
    try:
        signatures(damaged)
    except ValueError:
        return
