"""Every function that draws refuses a seed that is none, in words."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from evaluation import (
    Candidates,
    EvaluationError,
    evaluate,
    evaluate_ranking,
    permutation_importance,
    split_by_user,
)
from evaluation.seeds import generator

TABLE = pd.DataFrame({"label": [0, 1, 0, 1], "score": [0.1, 0.9, 0.4, 0.6], "user": [1, 1, 2, 2]})
RELEVANT = sparse.csr_array(np.eye(4, 6))


@pytest.mark.parametrize("seed", [-1, 1.5, "one", None, True])
def test_what_is_no_seed(seed):
    with pytest.raises(EvaluationError, match="seed must be a whole number of at least 0"):
        generator(seed)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: evaluate(TABLE, user="user", resamples=40, seed=-1),
        lambda: evaluate_ranking({"model": np.tile(np.arange(3), (4, 1))}, RELEVANT, ks=[2], seed=-1),
        lambda: Candidates.sampled(RELEVANT, negatives=2, seed=-1),
        lambda: split_by_user(TABLE["user"], 0.5, seed=-1),
        lambda: permutation_importance(
            lambda table: np.zeros(table.num_rows),
            pa.Table.from_pandas(TABLE),
            TABLE["label"].to_numpy(),
            {"user": ["user"]},
            seed=-1,
        ),
    ],
)
def test_functions_that_draw(draw):
    with pytest.raises(EvaluationError, match="got -1"):
        draw()
