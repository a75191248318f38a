"""The way people serve a SavedModel today: a FastAPI handler that builds one named tensor per feature.

It keeps users and items as rows of dictionaries, repeats the user's features for each candidate, calls
`serving_default` and sorts. Nothing else: no funnel, no histories, no events.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

MISSING = {"string": "", "int": -(2**63), "float": float("nan")}
TYPES = {"string": tf.string, "int": tf.int64, "float": tf.float32}


class RankBody(BaseModel):
    """A user, the items to rank, and the request."""

    user_id: str
    item_ids: list[str]
    context: dict[str, Any]


def create_app(bundle: Path) -> FastAPI:
    """The application."""
    model = tf.saved_model.load(str(bundle / "model"))
    signature = model.signatures["serving_default"]
    inputs = json.loads((bundle / "manifest.json").read_text())["inputs"]
    users = {row["user_id"]: row for row in pq.read_table(bundle / "users" / "users.parquet").to_pylist()}
    items = {
        row["item_id"]: row for row in pq.read_table(bundle / "candidates" / "items.parquet").to_pylist()
    }
    app = FastAPI()

    def column(entry: dict[str, Any], values: list[Any]) -> tf.Tensor:
        missing = MISSING[entry["kind"]]
        if not entry["list"]:
            return tf.constant(
                [missing if value is None else value for value in values], TYPES[entry["kind"]]
            )
        longest = max((len(value or ()) for value in values), default=0)
        padded = [[*(value or ()), *[missing] * (longest - len(value or ()))] for value in values]
        return tf.constant(padded, TYPES[entry["kind"]], shape=(len(values), longest))

    @app.post("/rank")
    def rank(body: RankBody) -> dict[str, Any]:
        user = {**users.get(body.user_id, {}), **body.context}
        rows = [items.get(item, {}) for item in body.item_ids]
        tensors = {
            entry["tensor"]: column(
                entry,
                [row.get(entry["column"]) for row in rows]
                if entry["of_item"]
                else [user.get(entry["column"])] * len(rows),
            )
            for entry in inputs
        }
        scores = next(iter(signature(**tensors).values())).numpy()
        best = np.argsort(-scores)[:20]
        return {"items": [{"item_id": body.item_ids[row], "score": float(scores[row])} for row in best]}

    @app.get("/health/ready")
    def ready() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    uvicorn.run(create_app(Path(sys.argv[1])), port=int(sys.argv[2]), log_level="warning", access_log=False)
