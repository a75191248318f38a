"""Where the time of a training step goes: each part timed alone on batches of the throughput benchmark.

    python benchmarks/step_breakdown.py --data FOLDER     the folder that train_throughput.py --data has filled

Times are milliseconds per batch of 4096: the median and the shortest wall time, and CPU time of all threads. Parts
timed alone find their data in the caches more often than inside a step, so they do not add up exactly.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import folder_last  # noqa: F401
import tensorflow as tf
from criteo_like import generate
from loop_easyrec import pipeline
from settings import BATCH

from easyrec.config.loader import load_config
from easyrec.config.resolve import resolve
from easyrec.data.dataset import open_dataset
from easyrec.data.stream import EncodedStream
from easyrec.features.encoder import Encoder
from easyrec.models.network import build_network
from easyrec.training.prefetch import prepare
from easyrec.training.step import TrainStep

BATCHES = 24
REPEATS = 60


def timed(
    name: str, parts: Iterator[Callable[[], object]], repeats: int = REPEATS, per_call: float = 1.0
) -> None:
    """Prints the time of a part; `per_call` batches are done by one call."""
    for part in itertools.islice(parts, 3):
        part()
    walls, cpu = [], time.process_time()
    for part in itertools.islice(parts, repeats):
        begin = time.perf_counter()
        part()
        walls.append((time.perf_counter() - begin) * 1e3 / per_call)
    cpu_each = (time.process_time() - cpu) * 1e3 / len(walls) / per_call
    print(f"{name:<44}{statistics.median(walls):>9.2f}{min(walls):>9.2f}{cpu_each:>9.2f}", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data; a temporary one unless given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = generate(options.data or Path(folder))
        path = Path(folder) / "pipeline.yaml"
        path.write_text(pipeline(data.train.parent, seed=0))
        config = load_config(path)
        dataset = open_dataset(config, Path(folder) / "prepared")
        config = resolve(config, dataset.columns)
        rows = dataset.bind(config)
        encoder = Encoder(config, dataset.columns).fit(rows.train.chunks())
        stream = EncodedStream(rows.train, encoder.encode_table, BATCH, config.data.shuffle_buffer, 0)
        network = build_network(config, encoder.schema)
        step = TrainStep(network, config.training)
        encoded = list(itertools.islice(stream.batches(0), BATCHES))
        batches = [prepare(network.embeddings, batch) for batch in encoded]

        print(f"{'':<44}{'median':>9}{'min':>9}{'CPU':>9}")
        chunks = list(itertools.islice(rows.train.chunks(seed=0), 4))
        each = chunks[0].num_rows / BATCH
        for chunk in chunks[:2]:
            encoder.encode_table(chunk)
        reader = rows.train.chunks(seed=1)
        timed("input thread: read Parquet", (lambda: next(reader) for _ in range(11)), 8, each)
        timed("input thread: encode", (lambda c=c: encoder.encode_table(c) for c in chunks * 4), 12, each)
        joined = encoded[0].concat(encoded)
        order = tf.random.shuffle(tf.range(joined.num_rows)).numpy()
        timed(
            "input thread: shuffle (once)", (lambda: joined.take(order) for _ in range(11)), 8, len(encoded)
        )
        embeddings = network.embeddings
        again = itertools.cycle(range(BATCHES))
        timed(
            "input thread: unique ids, to tensors",
            (lambda i=i: prepare(embeddings, encoded[i]) for i in again),
        )

        gather = tf.function(embeddings.gather, reduce_retracing=True)
        gathered = [gather(batch.lookup) for batch in batches]
        timed("gather distinct rows", (lambda i=i: gather(batches[i].lookup) for i in again))
        expand = tf.function(embeddings.expand, reduce_retracing=True)
        activations = [expand(gathered[i], batches[i].lookup) for i in range(BATCHES)]
        timed("expand to [B, F, D]", (lambda i=i: expand(gathered[i], batches[i].lookup) for i in again))
        dense = tf.function(step._dense, jit_compile=config.training.jit_compile)
        one = tf.constant(1.0)
        upstream = [dense(activations[i], batches[i].tensors, one)[1] for i in range(BATCHES)]
        timed(
            "dense forward, backward, Adam",
            (lambda i=i: dense(activations[i], batches[i].tensors, one)[0]["loss"].numpy() for i in again),
        )

        @tf.function(reduce_retracing=True)
        def backward(rows, lookup, upstream):  # type: ignore[no-untyped-def]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(rows)
                targets = embeddings.expand(rows, lookup)
            return tape.gradient({key: targets[key] for key in upstream}, rows, output_gradients=upstream)

        def sums(i: int) -> object:
            return backward(gathered[i], batches[i].lookup, upstream[i])

        timed("add gradients up by row", (lambda i=i: sums(i) for i in again))
        gradients = [sums(i) for i in range(BATCHES)]

        @tf.function(reduce_retracing=True)
        def update(rows, lookup, gradients):  # type: ignore[no-untyped-def]
            embeddings.apply_gradients(step.row_optimizer, lookup, rows, gradients, tf.constant(0.02))

        timed(
            "Adagrad on the rows",
            (lambda i=i: update(gathered[i], batches[i].lookup, gradients[i]) for i in again),
        )
        timed(
            "whole step",
            (lambda i=i: step(batches[i].tensors, batches[i].lookup, 1.0)["loss"].numpy() for i in again),
        )


if __name__ == "__main__":
    main()
