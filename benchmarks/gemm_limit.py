"""How many examples a second the machine's matrix multiplication alone would allow.

Times the products of the model's layers, forward and both backward ones, through TensorFlow and through NumPy, and one
large square product; the fastest rate counts as the machine's.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from criteo_like import COUNTS, IDS
from settings import BATCH, DIM, HIDDEN

WIDTHS = [len(IDS) * DIM + len(COUNTS), *HIDDEN, 1]
# A multiply and an add each; forward, gradient of the weights, gradient of the input.
FLOPS_PER_EXAMPLE = 3 * sum(2 * fan_in * fan_out for fan_in, fan_out in itertools.pairwise(WIDTHS))


def best(function: Callable[[], object], seconds: float = 1.0) -> float:
    """The shortest time of one call, over `seconds` of trying."""
    function()
    shortest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def layers() -> float:
    """Rate of TensorFlow at the model's own shapes."""
    random = np.random.default_rng(0)
    work, total = 0.0, 0.0
    for fan_in, fan_out in itertools.pairwise(WIDTHS[:-1]):
        x = tf.constant(random.random((BATCH, fan_in), np.float32))
        w = tf.constant(random.random((fan_in, fan_out), np.float32))
        g = tf.constant(random.random((BATCH, fan_out), np.float32))
        for product in (
            lambda x=x, w=w: tf.matmul(x, w).numpy(),
            lambda x=x, g=g: tf.matmul(x, g, transpose_a=True).numpy(),
            lambda w=w, g=g: tf.matmul(g, w, transpose_b=True).numpy(),
        ):
            total += best(product, 0.3)
            work += 2 * BATCH * fan_in * fan_out
    return work / total


def main() -> None:
    """Prints rates in floating-point operations a second, and the limit in examples a second."""
    square = np.random.default_rng(0).random((2048, 2048), np.float32)
    tensor = tf.constant(square)
    rates = {
        "tensorflow, the model's layers": layers(),
        "tensorflow, 2048 x 2048": 2 * 2048**3 / best(lambda: tf.matmul(tensor, tensor).numpy()),
        "numpy, 2048 x 2048": 2 * 2048**3 / best(lambda: square @ square),
    }
    limit = max(rates.values()) / FLOPS_PER_EXAMPLE
    print(json.dumps({"rates": rates, "flops_per_example": FLOPS_PER_EXAMPLE, "limit": limit}))


if __name__ == "__main__":
    main()
