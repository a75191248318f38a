"""Small tensors of one device travel as one and come out as they were."""

import numpy as np
import pytest
import tensorflow as tf

from easyrec.training.cluster.packing import fetched, pushed

PLACE = "/job:localhost/replica:0/task:0/device:CPU:0"
SHAPES = [(3, 2), (), (4,), (0, 5), (1, 1)]


@pytest.mark.parametrize("carry", [fetched, pushed])
def test_values_arrive_under_their_names_whatever_their_shapes_and_types(carry):
    values = {f"w{index}": np.full(shape, index, np.float32) for index, shape in enumerate(SHAPES)}
    values["seed"] = np.arange(3, dtype=np.uint32) + 2**31
    values["more"] = np.array(7, np.uint32)
    values["ids"] = np.arange(5, dtype=np.int32)
    values["wide"] = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    values["narrow"] = np.random.default_rng(1).normal(size=(5, 1)).astype(np.float32)
    values["none"] = np.zeros((0, 2), np.float32)
    values["short"] = np.ones((2, 1), np.float32)
    unknown = {"ids", "wide", "narrow", "none", "short"}
    signature = {
        name: tf.TensorSpec([None, *value.shape[1:]] if name in unknown else value.shape, value.dtype)
        for name, value in values.items()
    }
    signature["short"] = tf.TensorSpec([None, 1], tf.bfloat16)
    inputs = {name: tf.cast(value, signature[name].dtype) for name, value in values.items()}

    @tf.function(input_signature=[signature], autograph=False)
    def there(tensors):
        return carry({name: (PLACE, tensor) for name, tensor in tensors.items()})

    arrived = there(inputs)
    assert arrived.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(tf.cast(arrived[name], value.dtype), value)
    concrete = there.get_concrete_function()
    assert concrete.structured_outputs["narrow"].shape.as_list() == [None, 1]
    moved = {node.attr["T"].type for node in concrete.graph.as_graph_def().node if node.op == "ConcatV2"}
    assert moved == {tf.float32.as_datatype_enum, tf.uint32.as_datatype_enum}
