"""Dense weights packed into one tensor per server and type come back as they were."""

import keras
import numpy as np
import tensorflow as tf

from easyrec.training.cluster.packing import Packing


def test_values_come_back_in_order_whatever_their_shapes_and_types():
    shapes = [(3, 2), (), (4,), (0, 5), (1, 1)]
    variables = [
        keras.Variable(np.full(shape, index, np.float32), dtype="float32")
        for index, shape in enumerate(shapes)
    ]
    variables.insert(2, keras.Variable(np.arange(3, dtype=np.uint32), dtype="uint32", trainable=False))
    packing = Packing(variables)
    packed = tf.function(packing.read)()
    assert sorted(tensor.dtype.name for tensor in packed) == ["float32", "uint32"]
    variables[0].assign(np.ones((3, 2), np.float32))  # what was read stays what it was
    values = packing.unpack(packed)
    assert [value.shape for value in values] == [variable.shape for variable in variables]
    np.testing.assert_array_equal(values[0], np.zeros((3, 2)))
    np.testing.assert_array_equal(values[2], [0, 1, 2])
    np.testing.assert_array_equal(values[3], np.full(4, 2.0))
