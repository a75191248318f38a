"""What published results on public data look like when EasyRec is trained on the same rows.

    python benchmarks/published_results.py --movielens-100k ml-100k --census census-income.data.gz

Give the data you have. `--movielens-100k` is the folder of GroupLens (u.data, u.item, u.user); `--census` is a file of
the KDD census income data of the UCI repository. Nothing is downloaded. Each line shows what was published, and what is
measured here with the protocol of the publication. Learning rate, L2 and epochs were chosen on the first fold and are
the same for all; no checkpoint is chosen by the rows that are judged.

    rating      RMSE of ratings 1 to 5, mean of five random folds: the table in the README of Surprise
                (Hug, 2020, https://doi.org/10.21105/joss.02174)
    retrieval   top-100 accuracy of a two-tower model among all 1,682 movies, seen ones included, random 80/20: the deep
                retrieval tutorial of TensorFlow Recommenders
    mmoe        AUC of two tasks on one model: the results of PaddleRec for Ma et al. (2018), on the whole data;
                the file given here is split in half at random, as the publications halve the test file
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import folder_last  # noqa: F401  (keeps this folder's modules from hiding installed ones)
import numpy as np
import pandas as pd
import pyarrow as pa

import easyrec

GENRES = [
    "unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
]  # fmt: skip
CENSUS = Path(__file__).resolve().parent.parent / "feature_configs" / "census_mmoe.yaml"
QUICK: dict[str, Any] = {"resamples": 0, "baselines": []}


def movielens(folder: Path, target: Path) -> pd.DataFrame:
    """Writes users.parquet and items.parquet; gives the ratings."""
    ratings = pd.read_csv(folder / "u.data", sep="\t", names=["user_id", "movie_id", "rating", "timestamp"])
    items = pd.read_csv(folder / "u.item", sep="|", header=None, encoding="latin-1")
    flags = items.iloc[:, 5:].to_numpy(bool)
    genres = ["|".join(name for name, flag in zip(GENRES, row, strict=True) if flag) for row in flags]
    year = pd.to_numeric(items[2].str[-4:], errors="coerce")
    pd.DataFrame({"movie_id": items[0], "title": items[1], "year": year, "genres": genres}).to_parquet(
        target / "items.parquet"
    )
    users = pd.read_csv(
        folder / "u.user", sep="|", names=["user_id", "age", "gender", "occupation", "zip_code"]
    )
    users.to_parquet(target / "users.parquet")
    return ratings


def train(work: Path, name: str, train: pd.DataFrame, held_out: pd.DataFrame, **config: Any) -> easyrec.Run:
    """Trains on some rows and measures on others."""
    train.to_parquet(work / "train.parquet")
    held_out.to_parquet(work / "eval.parquet")
    data = {
        "train": str(work / "train.parquet"),
        "eval": str(work / "eval.parquet"),
        "keys": {"user": "user_id", "item": "movie_id", "time": "timestamp"},
        "tables": {"item": str(work / "items.parquet"), "user": str(work / "users.parquet")},
    }
    return easyrec.train({"name": name, "data": data, "output": str(work), **config}, overwrite=True)


def rating(work: Path, ratings: pd.DataFrame) -> None:
    """RMSE over five folds, from ids alone as the published models, and with what is known of users and movies."""
    ids: dict[str, Any] = {"user_id": "id", "movie_id": "id"}
    more = {
        **ids, "age": {"type": "number", "buckets": 8}, "gender": "id", "occupation": "id",
        "genres": {"type": "tags", "separator": "|"}, "year": {"type": "number", "buckets": 20},
    }  # fmt: skip
    fold = np.random.default_rng(0).permutation(len(ratings)) % 5
    for name, features, model in (
        ("FM, ids", ids, {"type": "fm"}),
        ("DeepFM, ids", ids, {"type": "deepfm", "hidden_units": [64, 32], "dropout": 0.2}),
        ("DeepFM, ids, age, genres ...", more, {"type": "deepfm", "hidden_units": [64, 32], "dropout": 0.2}),
    ):
        errors = [
            train(
                work, "rating", ratings[fold != one], ratings[fold == one],
                features=features, model=model, embedding={"l2": 2e-4}, tasks={"rating": {"type": "regression"}},
                training={"batch_size": 256, "epochs": 6, "optimizer": {"embedding": {"learning_rate": 0.05}},
                          "checkpoints": {"metric": "rating/rmse"}},
                export={"checkpoint": "last", "users": False},
                evaluation={**QUICK, "ranking": False},
            ).metrics["rating/rmse"]
            for one in range(5)
        ]  # fmt: skip
        report("rating", name, "RMSE", np.mean(errors), "SVD 0.934, SVD++ 0.919, KNNBaseline 0.931")


def retrieval(work: Path, ratings: pd.DataFrame) -> None:
    """How often the movie of a held-out row is among the 100 that the two-tower model puts first."""
    held_out = np.random.default_rng(42).permutation(len(ratings)) >= 80_000
    watched = ratings[held_out]
    run = train(
        work, "retrieval", ratings[~held_out], watched,
        features={"user_id": "id", "movie_id": "id"},
        model={"type": "two_tower", "hidden_units": [32], "output_dim": 32},
        embedding={"dim": 32},
        tasks={"watched": {"type": "retrieval"}},
        training={"batch_size": 512, "epochs": 5, "optimizer": {"embedding": {"learning_rate": 0.05}}},
        export={"checkpoint": "last"},
        evaluation={**QUICK, "k": [100], "max_users": 100},
    )  # fmt: skip
    ranker = run.bundle.catalogue.ranker
    places = {key: place for place, key in enumerate(ranker.items.table["movie_id"].to_pylist())}
    targets = [places[key] for key in watched["movie_id"]]
    users = pa.Table.from_pandas(watched[["user_id"]], preserve_index=False)
    hits = [
        (scores > scores[target]).sum() < 100
        for scores, target in zip(ranker.scores(users), targets, strict=True)
    ]
    report(
        "retrieval", "two-tower, ids", "top-100", np.mean(hits), "0.23 embeddings alone, 0.27 to 0.29 deep"
    )


def mmoe(work: Path, file: Path) -> None:
    """AUC of both tasks of the shipped configuration."""
    run = easyrec.train(
        CENSUS,
        [f"data.train.path={file}", "training.epochs=5", "data.split.fraction=0.5", f"output={work}",
         "evaluation.resamples=0", "export.checkpoint=last"],
        overwrite=True,
    )  # fmt: skip
    report("mmoe", "MMoE", "income AUC", run.metrics["income/auc"], "0.945")
    report("mmoe", "MMoE", "never married AUC", run.metrics["never_married/auc"], "0.993")


def report(protocol: str, model: str, metric: str, value: float, published: str) -> None:
    """Prints a line of the table."""
    print(f"{protocol:<10} {model:<30} {metric:<18} {value:.4f}   published: {published}", flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--movielens-100k", type=Path, metavar="FOLDER", help="folder with u.data, u.item, u.user"
    )
    parser.add_argument("--census", type=Path, metavar="FILE", help="KDD census income data, plain or .gz")
    given = parser.parse_args()
    if given.movielens_100k is None and given.census is None:
        parser.error("give --movielens-100k, --census, or both")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if given.movielens_100k is not None:
            ratings = movielens(given.movielens_100k, work)
            retrieval(work, ratings)
            rating(work, ratings)
        if given.census is not None:
            mmoe(work, given.census)


if __name__ == "__main__":
    main()
