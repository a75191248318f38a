"""A package from outside adds a model, a feature type and a metric; what it adds is trained, measured and exported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.integration.tiny import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]

PARTS = '''
from typing import Literal

import keras
import tensorflow as tf

from easyrec.config.features import FEATURES, EmbeddedFeature
from easyrec.config.models import MODELS, DeepModelConfig
from easyrec.features.base import Transform
from easyrec.features.outputs import IdsOutput
from easyrec.features.tensors import missing
from easyrec.models.base import RecModel
from evaluation.metrics.registry import Metric, register_metric


class DecadeConfig(EmbeddedFeature):
    """A year as its decade."""

    type: Literal["decade"] = "decade"


class Decade(Transform[DecadeConfig]):
    def __init__(self, config, scope):
        super().__init__(config, scope)
        self.table = scope.table(config)
        self.year = scope.number(config.column or scope.name)

    def inputs(self):
        return (self.year,)

    def output(self):
        table = self.table
        return IdsOutput(self.name, table.name, 12, table.dim, self.side, initializer=table.initializer)

    def transform(self, columns, count):
        year = columns[self.year.name]
        absent = missing(year)
        count("missing", absent)
        decade = tf.cast((tf.where(absent, 1900.0, tf.cast(year, tf.float32)) - 1900.0) / 10.0, tf.int32)
        return tf.where(absent, 0, tf.clip_by_value(decade, 0, 10) + 1)


class PlainSumConfig(DeepModelConfig):
    """The sum of a hidden layer."""

    type: Literal["plain_sum"] = "plain_sum"


class PlainSum(RecModel):
    def __init__(self, config, schema, task_units):
        super().__init__(config, schema, task_units)
        self.deep = self.mlp()
        self.logits = keras.layers.Dense(self.units, name="logits")

    def call(self, inputs, training=False):
        return self.logits(self.deep(inputs.flat, training=training))


def share_above_half(label, score, weight=None):
    return float((score > 0.5).mean())


FEATURES.register("decade", DecadeConfig, Decade)
MODELS.register("plain_sum", PlainSumConfig, PlainSum)
register_metric(Metric("above_half", ("binary",), share_above_half, True, "share of scores above a half"))
'''

PROGRAM = """
import json, sys
import easyrec
run = easyrec.train(json.loads(sys.argv[1]))
rows = easyrec.load(run.folder.directory).predict({"movie_id": [1, 2], "user_id": [101, 102]})["liked"].tolist()
print(json.dumps([run.metrics, rows, len(run.recommend(101, n=4))]))
"""


def test_a_model_a_feature_and_a_metric_from_outside(data, tmp_path):
    (tmp_path / "film_parts").mkdir()
    (tmp_path / "film_parts" / "__init__.py").write_text(PARTS)
    config = pipeline(
        data,
        tmp_path,
        features={"user_id": "id", "movie_id": "id", "decade": {"type": "decade", "column": "year"}},
        model={"type": "plain_sum", "hidden_units": [4]},
        tasks={"liked": {"type": "binary", "label": "rating >= 4", "metrics": ["auc", "above_half"]}},
    )
    config["plugins"] = ["film_parts"]
    config["training"] |= {"epochs": 1}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(config)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics, rows, recommended = json.loads(done.stdout)
    assert 0 <= metrics["liked/above_half"] <= 1
    assert recommended == 4
    assert rows[0] != rows[1]
    run = tmp_path / "films"
    report = json.loads((run / "report" / "report.json").read_text())
    assert (
        report["evaluation"]["tasks"]["liked"]["metrics"]["above_half"]["value"]
        == metrics["liked/above_half"]
    )
    assert "above_half" in (run / "report" / "report.html").read_text()
    coverage = json.loads((run / "run.json").read_text())["features"]["decade"]
    assert coverage["rows"] == len(pd.read_parquet(data / "train.parquet"))
