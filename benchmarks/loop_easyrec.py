"""EasyRec itself, from a YAML file and Parquet to weights: the path that every run takes, nothing prepared for it."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import folder_last  # noqa: F401
import numpy as np
import tensorflow as tf
from criteo_like import IDS, VOCABULARIES, auc
from settings import ADAGRAD, BATCH, HIDDEN, LEARNING_RATE, Outcome, arguments, finish

from easyrec.config.loader import load_config
from easyrec.config.resolve import resolve
from easyrec.data.dataset import open_dataset
from easyrec.data.stream import EncodedStream
from easyrec.features.encoder import Encoder
from easyrec.models.network import build_network
from easyrec.training.callbacks import Callback
from easyrec.training.trainer import Trainer


def pipeline(data: Path, seed: int, epochs: int = 1) -> str:
    """The YAML file of the benchmark's model."""
    ids = "\n".join(
        f"  {name}: {{type: id, vocabulary: {{size: {size}}}}}"
        for name, size in zip(IDS, VOCABULARIES, strict=True)
    )
    return f"""
name: criteo-like
data: {{train: {data}/train.parquet, eval: {data}/test.parquet, shuffle_buffer: 131072}}
features:
  "I*": {{type: number, normalize: log1p}}
{ids}
model: {{type: deepfm, hidden_units: {list(HIDDEN)}}}
tasks: {{label: {{type: binary}}}}
training:
  batch_size: {BATCH}
  epochs: {epochs}
  seed: {seed}
  optimizer:
    dense: {{type: adam, learning_rate: {LEARNING_RATE}}}
    embedding: {{type: adagrad, learning_rate: {ADAGRAD["learning_rate"]},
                 initial_accumulator: {ADAGRAD["initial_accumulator"]:.12f}, epsilon: {ADAGRAD["epsilon"]:.12f}}}
"""


class Clock(Callback):
    """Notes the time after the first step and at the end of the epoch."""

    def on_first_step(self, examples: int) -> None:
        """The model is compiled now."""
        self.examples = examples
        self.begin = time.perf_counter()
        self.cpu = time.process_time()

    def on_epoch_end(self, epoch: int, examples: int) -> None:
        """All rows are trained."""
        self.seconds = time.perf_counter() - self.begin
        self.cpu_seconds = time.process_time() - self.cpu
        self.examples = examples - self.examples


def main() -> None:
    """Trains one epoch and prints the outcome."""
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        path.write_text(pipeline(options.data, options.seed))
        config = load_config(path)
        dataset = open_dataset(config, Path(folder) / "prepared")
        config = resolve(config, dataset.columns)
        rows = dataset.bind(config)
        encoder = Encoder(config, dataset.columns).fit(rows.train.chunks())
        stream = EncodedStream(
            rows.train, encoder.encode_table, BATCH, config.data.shuffle_buffer, config.training.seed
        )
        network = build_network(config, encoder.schema)
        clock = Clock()
        trainer = Trainer(
            network,
            config.training,
            Path(folder),
            rows=rows.train.num_rows,
            schema=encoder.schema,
            callbacks=[clock],
        )
        result = trainer.fit(stream)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    predict = tf.function(network.predict, reduce_retracing=True)
    labels, scores = [], []
    if rows.eval is not None:
        for chunk in rows.eval.chunks():
            batch = encoder.encode_table(chunk).as_dict()
            labels.append(batch["label/label"])
            scores.append(predict({key: tf.constant(value) for key, value in batch.items()})["label"].numpy())
    quality = auc(np.concatenate(labels), np.concatenate(scores))
    finish(Outcome(clock.examples, clock.seconds, clock.cpu_seconds, quality, peak, result.wait_share))


if __name__ == "__main__":
    main()
