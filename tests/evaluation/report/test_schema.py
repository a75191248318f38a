"""What `report.json` holds is what its schema says."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import evaluation
from evaluation import (
    Attribution,
    EvaluationResult,
    Interactions,
    TaskColumns,
    check_leakage,
    evaluate,
    evaluate_ranking,
    evaluate_slices,
    fit_baselines,
    permutation_importance,
    write_report,
)

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads(
    (Path(evaluation.__file__).parent / "report" / "report.schema.json").read_text(encoding="utf-8")
)


def test_an_empty_report(tmp_path: Path) -> None:
    paths = write_report(tmp_path, title="Nothing")
    jsonschema.validate(json.loads(paths.json.read_text()), SCHEMA)


def test_a_full_report(tmp_path: Path) -> None:

    generator = np.random.default_rng(0)
    score = generator.random(200)
    table = pd.DataFrame(
        {
            "user": generator.integers(0, 20, 200),
            "item": generator.integers(0, 9, 200),
            "label": (generator.random(200) < score).astype(int),
            "score": score,
            "one": 1,
            "kind": generator.integers(0, 3, 200),
            "p": list(generator.dirichlet(np.ones(3), 200)),
        }
    )
    tasks = {
        "label": TaskColumns("binary", "label", "score"),
        "stars": TaskColumns("regression", "score", "label"),
        "always": TaskColumns("binary", "one", "score"),
        "kind": TaskColumns("multiclass", "kind", "p"),
    }
    judged: EvaluationResult = evaluate(table, tasks=tasks, user="user", item="item", resamples=40)
    taken = generator.random((20, 9)) < 0.3
    taken[:3] = False
    log = Interactions.of(*np.nonzero(taken), n_users=20, n_items=9)
    ranking = evaluate_ranking(
        {"m": lambda users: generator.random((len(users), 9)), **fit_baselines(log)},
        sparse.csr_array((generator.random((20, 9)) < 0.3).astype(float)),
        sparse.csr_array(taken.astype(float)),
        ks=(3,),
        interactions=log,
        resamples=40,
    )
    rows = pa.table({"x": score})
    paths = write_report(
        tmp_path,
        title="Everything",
        evaluation=judged,
        ranking=ranking,
        slices=[evaluate_slices(table, ["kind"], tasks=tasks, task="label", resamples=40)],
        leakage=check_leakage(table, table, label="label"),
        importance=[
            permutation_importance(lambda part: part["x"].to_numpy(), rows, table["label"], {"x": ["x"]})
        ],
        attributions=[Attribution("a row", 1.0, 0.5, {"x": 0.5}, {"x": "1"}, "log-odds")],
        examples=[{"user": "u", "history": ["a"], "recommended": ["b"]}],
        data={"training": {"rows": 1, "share": float("nan")}},
        versions={"python": "3"},
    )
    content = json.loads(paths.json.read_text())
    jsonschema.validate(content, SCHEMA)
    content["evaluation"]["tasks"]["label"]["metrics"]["auc"]["value"] = "0.7"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)
