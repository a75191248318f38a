"""A label of any size is learned, and predicted in its own units."""

import numpy as np
import pandas as pd

import easyrec


def test_a_large_label_is_learned_in_a_few_steps_and_the_bundle_predicts_it(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=800)
    frame = pd.DataFrame({"x": x, "kind": random.choice(["a", "b"], 800)})
    frame["price"] = 50_000 + 4_000 * x + 1_000 * (frame.kind == "a")
    frame.to_parquet(tmp_path / "rows.parquet")
    run = easyrec.train(
        {
            "name": "prices",
            "output": str(tmp_path / "runs"),
            "data": {"train": str(tmp_path / "rows.parquet"), "split": {"type": "random", "fraction": 0.2}},
            "features": {"x": "number", "kind": "id"},
            "model": {"type": "wide_and_deep", "hidden_units": [16]},
            "tasks": {"price": "regression"},
            "training": {"batch_size": 32, "epochs": 8},
        }
    )
    assert run.metrics["price/r2"] > 0.95
    predicted = easyrec.load(run.folder.directory).predict(frame)["price"]
    assert np.corrcoef(predicted, frame.price)[0, 1] > 0.97
    assert abs(predicted.mean() - frame.price.mean()) < 1_000
