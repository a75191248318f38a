"""Input that is wrong ends with one readable error, before anything of an earlier run is touched, or is counted."""

import gzip
import json
import shutil
from copy import deepcopy

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import easyrec
from tests.integration.tiny import pipeline

pytestmark = pytest.mark.integration

SMALL = {
    "features": {"movie_id": "id", "device": "id", "watched": {"type": "number"}},
    "model": {"type": "logistic_regression"},
}


@pytest.fixture
def rows(data) -> pd.DataFrame:
    """The training rows, to be spoiled."""
    return pd.read_parquet(data / "train.parquet")


@pytest.fixture
def config(data, tmp_path) -> dict:
    """A pipeline on a file of its own, to be spoiled."""
    found = pipeline(data, tmp_path / "runs", **deepcopy(SMALL))
    found["data"] |= {"train": str(tmp_path / "rows.parquet"), "tables": {}}
    found["training"] |= {"epochs": 1}
    return found


@pytest.fixture
def failed(config, rows, tmp_path, refused):
    """Trains on the spoiled rows from the command line, and gives the error."""

    def train(spoiled=None, *overrides, code=2) -> str:
        (rows if spoiled is None else spoiled).to_parquet(tmp_path / "rows.parquet", index=False)
        return run(*overrides, code=code)

    def run(*overrides, code=2) -> str:
        path = tmp_path / "films.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        sets = [part for override in overrides for part in ("--set", override)]
        error = refused("train", path, *sets, code=code)
        assert not (tmp_path / "runs" / "films").exists()
        return error

    train.run = run
    return train


# Files.


def test_missing_file(failed, config):
    config["data"]["train"] = "data/trian.parquet"
    assert "data/trian.parquet" in failed.run()


def test_the_nearest_file_is_named(failed, config, rows, tmp_path):
    rows.to_parquet(tmp_path / "rows.parquet")
    config["data"]["train"] = str(tmp_path / "row.parquet")
    assert "rows.parquet" in failed.run()


def test_glob_that_matches_nothing(failed, config, tmp_path):
    config["data"]["train"] = str(tmp_path / "part-*.parquet")
    error = failed.run()
    assert "part-*.parquet" in error
    assert "match" in error


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl", "rows.csv.gz"])
def test_empty_file(failed, config, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    config["data"]["train"] = str(path)
    error = failed.run()
    assert name in error
    assert "empty" in error or "no rows" in error


def test_table_without_rows(failed, rows):
    assert "no rows" in failed(rows[:0])


def test_truncated_parquet(failed, rows, tmp_path):
    rows.to_parquet(tmp_path / "rows.parquet")
    whole = (tmp_path / "rows.parquet").read_bytes()
    for end in (len(whole) // 2, len(whole) - 1):
        (tmp_path / "rows.parquet").write_bytes(whole[:end])
        assert "rows.parquet" in failed.run()


def test_parquet_damaged_in_the_middle(failed, rows, tmp_path):
    rows.to_parquet(tmp_path / "rows.parquet", compression="zstd")
    whole = bytearray((tmp_path / "rows.parquet").read_bytes())
    whole[200:2200] = bytes(2000)
    (tmp_path / "rows.parquet").write_bytes(whole)
    assert "rows.parquet" in failed.run()


def test_csv_row_with_too_many_fields(failed, config, rows, tmp_path):
    path = tmp_path / "rows.csv"
    lines = rows.to_csv(index=False).splitlines()
    lines[3] += ",surplus"
    path.write_text("\n".join(lines))
    config["data"]["train"] = str(path)
    error = failed.run()
    assert "rows.csv" in error
    assert "4" in error  # its line


def test_a_word_among_numbers_is_named_with_its_row(failed, config, rows, tmp_path):
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    config["data"]["train"] = str(path)
    lines = path.read_text().splitlines()
    place = list(rows).index("watched")
    cells = lines[8].split(",")
    lines[8] = ",".join([*cells[:place], "many", *cells[place + 1 :]])
    path.write_text("\n".join(lines) + "\n")
    errors = [failed.run()]  # the evaluation rows hold numbers there
    config["data"] |= {"eval": None}
    errors.append(failed.run())
    assert "the column 'watched' holds text" in errors[1]
    for error in errors:
        assert "the first that is no number is 'many' in" in error
        assert "row 8" in error


def test_wrong_encoding(failed, config, rows, tmp_path):
    rows["device"] = "télé"
    (tmp_path / "rows.csv").write_bytes(rows.to_csv(index=False).encode("cp1252"))
    config["data"]["train"] = str(tmp_path / "rows.csv")
    error = failed.run()
    assert "rows.csv" in error
    assert "utf-8" in error
    assert "encoding" in error


def test_unknown_suffix(failed, config, tmp_path):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    config["data"]["train"] = str(tmp_path / "rows.xlsx")
    assert "format" in failed.run()


# Columns.


def test_column_that_the_data_lack(failed, config):
    config["features"]["devise"] = "id"
    error = failed()
    assert "features.devise" in error
    assert "Did you mean 'device'?" in error


@pytest.mark.parametrize("value", [[[1], [2]], {"a": 1, "b": "x"}])
def test_column_of_a_type_that_is_not_read(failed, config, rows, value):
    config["features"]["nested"] = {"type": "tags"}
    rows["nested"] = [value] * len(rows)
    error = failed(rows)
    assert "the column 'nested' of" in error
    assert "which is not read" in error


def test_label_column_that_the_data_lack(failed):
    assert "Did you mean 'rating'?" in failed(None, "tasks.liked.label=ratings >= 4")


def test_pattern_that_matches_nothing(failed, config):
    config["features"]["tag_*"] = "id"
    error = failed()
    assert "tag_*" in error
    assert "matches no" in error


def test_duplicated_feature_names(config, rows, tmp_path, refused):
    rows.to_parquet(tmp_path / "rows.parquet")
    path = tmp_path / "films.yaml"
    text = yaml.safe_dump(config, sort_keys=False).replace("  device: id", "  device: id\n  device: id")
    path.write_text(text)
    error = refused("train", path)
    assert "device" in error
    assert "twice" in error or "already" in error


def test_all_problems_are_listed_at_once(config, rows, tmp_path, refused):
    rows.to_parquet(tmp_path / "rows.parquet")
    config["features"] |= {"devise": "id", "nothing_*": "id"}
    config["data"]["keys"]["user"] = "usr_id"
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    error = refused("train", path)
    assert "3 problems in the configuration" in error
    assert error.count("films.yaml:") == 3


def test_a_feature_that_is_all_null(failed, config, rows):
    for name, kind, values in (
        ("device", "id", pd.Series([None] * len(rows), dtype="string")),
        ("watched", {"type": "number"}, np.nan),
        ("watched", {"type": "number", "buckets": 3}, np.nan),
    ):
        config["features"] = {"movie_id": "id", name: kind}
        error = failed(rows.assign(**{name: values}))
        assert name in error
        assert "missing" in error or "null" in error


def test_evaluation_data_of_another_type(failed, config, data, tmp_path):
    evaluation = pd.read_parquet(data / "eval.parquet").assign(watched="much")
    evaluation.to_parquet(tmp_path / "eval.parquet")
    config["data"]["eval"] = str(tmp_path / "eval.parquet")
    error = failed()
    assert "'watched'" in error
    assert "number" in error or "float" in error
    assert "string" in error or "text" in error


def test_evaluation_data_without_a_column(failed, config, data, tmp_path):
    evaluation = pd.read_parquet(data / "eval.parquet").drop(columns="device")
    evaluation.to_parquet(tmp_path / "eval.parquet")
    config["data"]["eval"] = str(tmp_path / "eval.parquet")
    error = failed()
    assert "the eval data" in error
    assert "no column 'device'" in error
    assert "training on" not in error


def test_wrong_labels_of_evaluation_rows_are_found_before_training(failed, config, data, tmp_path):
    config["tasks"] = {"liked": "binary"}
    evaluation = pd.read_parquet(data / "eval.parquet")
    evaluation["liked"] = evaluation["rating"]
    evaluation.to_parquet(tmp_path / "eval.parquet")
    config["data"]["eval"] = str(tmp_path / "eval.parquet")
    rows = pd.read_parquet(data / "train.parquet")
    error = failed(rows.assign(liked=(rows["rating"] > 3).astype("float32")))
    assert "eval.parquet" in error
    assert "0 or 1" in error
    assert "training on" not in error


def test_a_split_that_holds_nothing_out(failed, config, rows):
    config["data"] |= {"eval": None, "split": {"type": "time", "fraction": 0.1}}
    error = failed(rows.assign(timestamp=rows["timestamp"][0]))
    assert "no evaluation rows are left" in error
    assert "training on" not in error


# Values.


def test_what_is_left_out_is_counted(config, rows, tmp_path, cli):
    config["features"]["watched"] = {"type": "number", "normalize": "log1p"}
    rows["watched"] = np.where(np.arange(len(rows)) < 12, -3, 5)  # negative counts
    rows = rows.astype({"movie_id": "Int64", "rating": "Float64"})
    rows.loc[100:109, "rating"] = pd.NA  # no label
    rows.loc[105:124, "movie_id"] = pd.NA  # no key
    lines = rows.to_csv(index=False).splitlines()
    lines[300] += ",surplus"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    config["data"] |= {"train": str(tmp_path / "rows.csv"), "on_error": "skip"}
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    outcome = cli("train", path)
    assert outcome.code == 0, outcome.err
    summary = json.loads((tmp_path / "runs" / "films" / "run.json").read_text())
    assert summary["data"]["bad_rows"] == {"train": 1}
    assert "line 301" in summary["data"]["examples"][0]
    train = summary["data"]["train"]
    assert train["rows_read"] == len(rows) - 1
    assert train["dropped"] == {"no value in key column 'movie_id'": 20, "no label of task 'liked'": 5}
    assert train["rows_used"] == len(rows) - 1 - 25
    assert summary["features"]["watched"]["negative"] == 12


@pytest.mark.parametrize("rating", [5, 1])
def test_label_of_one_class(failed, rows, rating):
    error = failed(rows.assign(rating=rating))
    assert "'liked'" in error
    assert f"have label {int(rating > 3)}" in error


def test_retrieval_in_which_nothing_is_ever_taken(failed, config):
    config["model"] = {"type": "two_tower", "hidden_units": [4], "output_dim": 4}
    config["features"] = {"user_id": "id", "movie_id": "id"}
    config["tasks"] = {"taken": {"type": "retrieval", "label": "rating > 5"}}
    assert "all 1200 training rows have label 0 (rating > 5), so there is nothing to learn" in failed()


def test_label_with_nan(failed, rows, config):
    config["tasks"] = {"clicked": "binary"}
    rows["clicked"] = np.where(rows.index % 2 == 0, 1.0, 0.0)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    values = rows["clicked"].to_numpy().copy()
    values[17] = np.nan
    table = table.set_column(
        table.schema.get_field_index("clicked"), "clicked", pa.array(values, from_pandas=False)
    )
    pq.write_table(table, config["data"]["train"])
    config["data"]["eval"] = None
    error = failed.run()
    assert "NaN" in error
    assert "17" in error or "18" in error


def test_label_of_text(failed, rows, config):
    config["tasks"] = {"clicked": "binary"}
    config["data"]["eval"] = None
    error = failed(rows.assign(clicked="yes"))
    assert "clicked" in error
    assert "'yes'" in error or "text" in error


def test_label_out_of_range(failed, config):
    config["tasks"] = {"rating": "binary"}
    error = failed()
    assert "0 or 1" in error
    assert "rating >= 4" in error


@pytest.mark.parametrize("part", ["training", "evaluation"])
def test_weights_of_zero_are_refused_before_training(failed, config, rows, part):
    latest = rows["timestamp"] >= rows["timestamp"].quantile(0.7)
    rows["weight of rows"] = np.where(latest == (part == "training"), 1.0, 0.0)
    config["data"] |= {"weight": "`weight of rows`", "eval": None, "split": {"type": "time", "fraction": 0.1}}
    if part == "training":
        rows["weight of rows"] = 0.0
    assert "the sample weight, '`weight of rows`', is 0 in all" in (error := failed(rows))
    assert f"{part} rows" in error


def test_no_row_is_left(failed):
    error = failed(None, "data.where=rating > 100")
    assert "no training rows are left" in error
    assert "data.where" in error


def test_loss_that_is_not_finite_names_the_cause(config, rows, tmp_path, refused):
    config["features"]["watched"] = {"type": "number", "normalize": "none"}
    rows["watched"] = 1e38
    rows.to_parquet(tmp_path / "rows.parquet")
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    error = refused("train", path, code=1)
    assert "not a finite number" in error
    assert "features.watched" in error


# Options that only a later step would notice.


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("training.optimizer.dense.options={momentm: 0.9}", "momentm"),
        ("evaluation.relevant=ratng > 3", "Did you mean 'rating'?"),
        ("evaluation.baselines=[popular]", "popularity"),
        ("tasks.liked.metrics=[acu]", "auc"),
        ("export.checkpoint=bets", "best"),
        ("evaluation.resamples=3", "at least 40"),
    ],
)
def test_an_option_is_refused_before_training(failed, override, named):
    assert named in failed(None, override)


# The disk, and files of a run.


def test_a_full_disk_ends_training_with_the_earlier_checkpoint_whole(
    config, rows, tmp_path, refused, small_disk
):
    config["training"] |= {"checkpoints": {"every_steps": 1, "keep": 500}, "epochs": 50}
    config["output"] = str(small_disk)
    rows.to_parquet(tmp_path / "rows.parquet")
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    error = refused("train", path)
    assert "No space left on device" in error
    whole = sorted((small_disk / "films" / "checkpoints").glob("step-*"))
    assert whole
    for checkpoint in whole:
        assert (checkpoint / "manifest.json").is_file()


def test_a_disk_that_fills_up_while_the_bundle_is_written_leaves_the_one_before(
    trained, tmp_path, refused, small_disk
):
    run = small_disk / "films"
    shutil.copytree(trained.folder.directory, run)
    before = easyrec.load(run).manifest
    free = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(bytes(free - 300_000))
    error = refused("export", run)
    assert "space" in error.lower()
    assert easyrec.load(run).manifest == before
    assert not list(run.glob(".*"))


def test_a_bundle_with_one_byte_changed_is_refused_naming_the_file(trained, tmp_path, refused):
    run = tmp_path / "films"
    shutil.copytree(trained.folder.directory / "bundle", run / "bundle")
    files = [
        path
        for path in sorted((run / "bundle").rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    ]
    assert len(files) > 8
    for path in files:
        original = path.read_bytes()
        changed = bytearray(original)
        changed[len(changed) // 2] ^= 1
        path.write_bytes(changed)
        error = refused("recommend", run, "--user", "101")
        assert str(path.relative_to(run / "bundle")) in error
        path.write_bytes(original)
    assert len(easyrec.load(run).recommend(101, n=3)) == 3


def test_a_damaged_checkpoint_is_not_exported(trained, tmp_path, refused):
    run = tmp_path / "films"
    shutil.copytree(trained.folder.directory, run)
    for path in (run / "checkpoints").rglob("embedding__*.npy"):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    error = refused("export", run)
    assert "embedding__" in error
    assert "damaged" in error
