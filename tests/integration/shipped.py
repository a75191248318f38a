"""Small tables of the same columns as the data sets that the shipped configurations are written for."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml


def overrides_for(config: Path, data: Path) -> list[str]:
    """What points a shipped configuration to the tables that the functions below wrote into `data`."""
    dataset = config.stem.partition("_")[0]
    if dataset == "census":
        return [f"data.train.path={data / 'census.data.gz'}"]
    paths = {"data.train": "train", "data.eval": "eval"}
    if dataset == "movielens":
        paths["data.tables.item"] = "movies"
    return [f"{path}={data / dataset / name}.parquet" for path, name in paths.items()]


def write_movielens(source: Path, data: Path, users: int = 40) -> None:
    """The real ratings of the users with the fewest, and their movies."""
    tables = {name: pd.read_parquet(source / f"{name}.parquet") for name in ("train", "eval", "movies")}
    kept = tables["train"]["user_id"].value_counts().tail(users).index
    for name in ("train", "eval"):
        tables[name] = tables[name][tables[name]["user_id"].isin(kept)]
    rated = pd.concat([tables["train"], tables["eval"]])["movie_id"]
    tables["movies"] = tables["movies"][tables["movies"]["movie_id"].isin(rated)]
    (data / "movielens").mkdir(parents=True)
    for name, table in tables.items():
        table.to_parquet(data / "movielens" / f"{name}.parquet", index=False)


def write_criteo(data: Path, rows: int = 600) -> None:
    """Counts with missing and negative values, and hexadecimal categories; the label depends on both."""
    random = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {}
    counts = np.floor(random.lognormal(1, 2, (rows, 13))).astype(np.int64) - 2
    values = random.zipf(1.6, (rows, 26)) % 50
    logit = 0.4 * np.log1p(np.maximum(counts[:, 0], 0)) + (values[:, 0] % 3) - 2
    columns["label"] = pa.array((random.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int32))
    for index in range(13):
        columns[f"I{index + 1}"] = pa.array(counts[:, index], mask=random.random(rows) < 0.2)
    for index in range(26):
        text = [f"{(value * 2654435761 + index) % 2**32:08x}" for value in values[:, index].tolist()]
        columns[f"C{index + 1}"] = pa.array(text, mask=random.random(rows) < 0.1)
    table = pa.table(columns)
    (data / "criteo").mkdir(parents=True)
    pq.write_table(table.slice(0, rows * 3 // 4), data / "criteo" / "train.parquet", row_group_size=100)
    pq.write_table(table.slice(rows * 3 // 4), data / "criteo" / "eval.parquet")


def write_census(config: Path, data: Path, rows: int = 500) -> None:
    """Text as the UCI repository has it: no header, a space after each comma, `?` and `Not in universe` for nothing."""
    names = yaml.safe_load(config.read_text(encoding="utf-8"))["data"]["train"]["options"]["names"]
    random = np.random.default_rng(1)
    education = random.integers(0, 5, rows)
    columns = {name: random.choice(["a b", "c", "?", "Not in universe"], rows) for name in names}
    columns["education"] = np.array(
        ["Children", "9th grade", "High school", "Bachelors degree", "Doctorate"]
    )[education]
    for name in ("age", "weeks_worked", "wage_per_hour", "capital_gains", "capital_losses", "dividends"):
        columns[name] = random.integers(0, 60, rows).astype(str)
    for name in ("industry", "occupation", "year"):
        columns[name] = random.integers(90, 96, rows).astype(str)
    columns["marital_status"] = random.choice(["Never married", "Divorced", "Widowed"], rows)
    columns["income"] = np.where(random.random(rows) < education / 5, "50000+.", "- 50000.")
    lines = (", ".join(cells) for cells in zip(*columns.values(), strict=True))
    with gzip.open(data / "census.data.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
