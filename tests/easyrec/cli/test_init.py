"""`easyrec init`: what it proposes is right for the data, says why, loads, and gives rows to train on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.cli.main import run
from easyrec.config.loader import load_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.data.classes import with_classes
from easyrec.data.dataset import open_dataset
from easyrec.features.encoder import Encoder
from easyrec.models.network import build_network

Propose = Callable[..., tuple[PipelineConfig, str]]


@pytest.fixture
def propose(tmp_path: Path) -> Propose:
    """Runs the command; returns the configuration, which has given rows, and its text."""

    def proposer(*arguments: str | Path) -> tuple[PipelineConfig, str]:
        target = tmp_path / "proposed.yaml"
        assert run(["init", *map(str, arguments), "-o", str(target), "--force"]) == 0
        config = load_config(target)
        dataset = open_dataset(config)
        resolved = resolve(config, dataset.columns)
        data = dataset.bind(with_classes(resolved, dataset.bind(resolved)))
        assert next(data.train.chunks(seed=0)).num_rows > 0
        assert next(data.eval.chunks()).num_rows > 0
        data.check_labels()
        return config, target.read_text()

    return proposer


def types(config: PipelineConfig) -> dict[str, str]:
    return {name: feature.type for name, feature in config.features.items()}


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Path]:
    """Interactions, items and users of a made-up shop, with a column of every kind."""
    random = np.random.default_rng(0)
    rows, users, items = 3000, 60, 80
    user, item = random.integers(0, users, rows), random.integers(0, items, rows)
    log = pa.table(
        {
            "event_id": np.arange(rows),
            "user_id": [f"u{index:04d}" for index in user],
            "product_id": 10_000 + item * 13,
            "created_at": pa.array(1_700_000_000 + random.integers(0, 10**6, rows), pa.timestamp("s")),
            "clicked": random.integers(0, 2, rows),
            "device": random.choice(["phone", "desktop"], rows),
            "page": random.integers(1, 6, rows),
            "dwell_seconds": random.lognormal(2, 2, rows).round(2),
            "viewed_products": [random.integers(0, 9, random.integers(0, 5)).tolist() for _ in range(rows)],
            "weights": pa.array([[("a", 0.5)]] * rows, pa.map_(pa.string(), pa.float32())),
            "vector": [[0.1, 0.2]] * rows,
            "country": ["de"] * rows,
            "comment": [f"comment number {index} of {index * 7919}" for index in range(rows)],
            "empty": pa.nulls(rows),
        }
    )
    products = pa.table(
        {
            "product_id": 10_000 + np.arange(items) * 13,
            "title": [f"A thing called {index}" for index in range(items)],
            "labels": [";".join(random.choice(list("abcdef"), 3, replace=False)) for _ in range(items)],
            "keywords": [
                "|".join(
                    f"{name}:{random.random():.1f}" for name in random.choice(list("xyz"), 2, replace=False)
                )
                for _ in range(items)
            ],
            "price": random.lognormal(3, 1, items).round(2),
            "category_id": random.integers(100, 110, items),
        }
    )
    people = pa.table(
        {"user_id": [f"u{index:04d}" for index in range(users)], "age": random.integers(18, 80, users)}
    )
    paths = {}
    for name, table in (("log", log), ("products", products), ("people", people)):
        paths[name] = tmp_path / f"{name}.parquet"
        pq.write_table(table, paths[name])
    return paths


def test_columns_of_every_kind_are_recognised(propose: Propose, shop: dict[str, Path]) -> None:
    config, text = propose(shop["log"], "--items", shop["products"], "--users", shop["people"])
    keys = config.data.keys
    assert (keys.user, keys.item, keys.time) == ("user_id", "product_id", "created_at")
    assert types(config) == {
        "user_id": "id", "product_id": "id", "device": "id", "page": "id", "dwell_seconds": "number",
        "viewed_products": "sequence", "weights": "tags", "labels": "tags", "keywords": "tags", "price": "number",
        "category_id": "id", "age": "number", "recent": "sequence",
    }  # fmt: skip
    features: dict[str, Any] = dict(config.features)
    assert features["labels"].separator == ";"
    assert (features["keywords"].separator, features["keywords"].weight_separator) == ("|", ":")
    assert features["dwell_seconds"].normalize == "log1p"
    assert features["recent"].history.where == "clicked == 1"
    assert config.tasks["clicked"].type == "binary"
    assert config.data.split is not None
    assert config.data.split.type == "user_latest"
    for name, why in {
        "event_id": "different in each row",
        "title": "almost never the same twice",
        "country": "always 'de'",
        "comment": "almost never the same twice",
        "empty": "no row has a value",
        "vector": "no feature type reads vectors",
    }.items():
        assert any(line.startswith(f"  #   {name}: ") and why in line for line in text.splitlines()), name


def test_tags_between_spaces_are_told_from_sentences(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    genres = ["Action", "Comedy", "Drama", "Sci-Fi", "Film-Noir", "War", "Musical"]
    nouns = ["house", "road", "night", "river"]
    table = {
        "clicked": random.integers(0, 2, 400),
        "genre": [" ".join(random.choice(genres, random.integers(1, 4), replace=False)) for _ in range(400)],
        "headline": [f"the {random.choice(nouns)} on a {random.choice(nouns)}" for _ in range(400)],
        "colour": [
            f"{random.choice(['light', 'dark'])} {random.choice(['red', 'blue'])}" for _ in range(400)
        ],
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, _ = propose(tmp_path / "rows.parquet")
    assert types(config) == {"genre": "tags", "headline": "id", "colour": "id"}
    assert config.features["genre"].separator == " "


def test_each_line_of_a_feature_says_why(propose: Propose, shop: dict[str, Path]) -> None:
    _, text = propose(shop["log"])
    body = text.split("features:\n")[1].split("model:")[0].splitlines()
    assert all("#" in line for line in body)


def test_ratings_become_a_condition(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lines = [
        f"{random.integers(1, 40)},{random.integers(1, 90)},{random.choice([1, 2, 3, 4, 5])},{978300000 + index * 60}"
        for index in range(2000)
    ]
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines))
    config, _ = propose(tmp_path / "ratings.csv")
    assert config.tasks["liked"].label == "rating >= 4"
    assert "rating" not in config.features
    assert config.data.keys.time == "timestamp"
    assert config.data.negatives is not None
    (tmp_path / "ratings.dat").write_text("\n".join(lines).replace(",", "::"))
    config, text = propose(tmp_path / "ratings.dat")
    assert config.data.train.options == {"delimiter": "::", "header": False}
    keys = config.data.keys
    assert (keys.user, keys.item, keys.time) == ("column_1", "column_2", "column_4")
    assert config.tasks["liked"].label == "column_3 >= 4"
    assert "the first line looks like data" in text


def test_a_click_log_without_header(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    lines = []
    for _ in range(1500):
        numbers = ["" if random.random() < 0.2 else str(int(random.lognormal(2, 2)) - 1) for _ in range(3)]
        codes = [
            "" if random.random() < 0.1 else f"{int(random.zipf(1.5)) * 2654435761 % 2**32:08x}"
            for _ in range(3)
        ]
        lines.append("\t".join([str(int(random.random() < 0.25)), *numbers, *codes]))
    (tmp_path / "train.txt").write_text("\n".join(lines))
    config, _ = propose(tmp_path / "train.txt")
    assert config.data.train.options == {"delimiter": "\t", "header": False}
    assert list(config.tasks) == ["column_1"]
    assert list(types(config).values()) == ["number"] * 3 + ["id"] * 3


def test_choices_without_a_label_are_a_retrieval_task(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = {
        "visitor": random.integers(0, 30, 500),
        "article_id": random.integers(0, 50, 500),
        "day": random.integers(1, 8, 500),
    }
    pq.write_table(pa.table(table), tmp_path / "clicks.parquet")
    config, _ = propose(tmp_path / "clicks.parquet")
    assert (config.model.type, config.tasks["chosen"].type) == ("two_tower", "retrieval")
    assert types(config) == {"visitor": "id", "article_id": "id"}


def test_what_describes_an_item_or_gives_the_answer_away_is_noticed(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    item, rating = random.integers(0, 40, 2000), random.integers(1, 6, 2000)
    table = {
        "user_id": random.integers(0, 50, 2000),
        "item_id": item,
        "brand": [f"brand {index % 7}" for index in item],
        "item_name": [f"name {index}" for index in item],
        "rating": rating,
        "verdict": [["bad", "poor", "fair", "good", "great"][value - 1] for value in rating],
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    config, text = propose(tmp_path / "log.parquet")
    assert config.features["brand"].side == "item"
    assert types(config) == {"user_id": "id", "item_id": "id", "brand": "id"}
    assert "item_name: another name of 'item_id'" in text
    assert "verdict: gives the answer away" in text


def test_names_that_yaml_or_patterns_would_misread_are_written_safely(
    propose: Propose, tmp_path: Path
) -> None:
    names = ["yes", "a: b", "x#y", "12", "star*", "über", "null", 'a"b', "c'd", "{z}", "${HOME}"]
    random = np.random.default_rng(5)
    table = {name: random.choice(["p", "q", "r"], 300) for name in names}
    pq.write_table(pa.table({**table, "the label": random.integers(0, 2, 300)}), tmp_path / "odd.parquet")
    config, _ = propose(tmp_path / "odd.parquet")
    assert {feature.columns(name)[0] for name, feature in config.features.items()} == set(names)
    assert list(config.tasks) == ["the label"]


def test_the_user_may_name_the_label(propose: Propose, shop: dict[str, Path]) -> None:
    config, _ = propose(shop["log"], "--label", "dwell_seconds > 10")
    assert config.tasks["label"].label == "dwell_seconds > 10"
    assert "dwell_seconds" not in config.features
    assert "clicked" in config.features
    config, _ = propose(shop["log"], "--label", "dwell_seconds")
    assert config.tasks["dwell_seconds"].type == "regression"


def test_a_column_called_like_an_answer_is_the_label(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    frame = {"a": random.normal(size=300), "b": random.normal(size=300), "flag": random.integers(0, 2, 300)}
    for values, task in (
        (random.integers(0, 3, 300), {"type": "multiclass", "classes": 3}),
        (random.normal(150, 40, 300), {"type": "regression"}),
        (random.integers(25, 346, 300), {"type": "regression"}),
    ):
        pq.write_table(pa.table({**frame, "target": values}), tmp_path / "rows.parquet")
        config, _ = propose(tmp_path / "rows.parquet")
        assert list(config.tasks) == ["target"]
        assert {name: getattr(config.tasks["target"], name) for name in task} == task


def test_of_two_columns_of_two_words_the_outcome_is_the_label(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    table = {
        "survived": random.choice(["no", "yes"], 300, p=[0.3, 0.7]),
        "sex": random.choice(["male", "female"], 300),
        "hourlyRate": random.integers(30, 100, 300),
        "overtime": random.choice(["No", "Yes"], 300),
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, _ = propose(tmp_path / "rows.parquet")
    assert config.tasks["survived"].label == 'survived == "yes"'  # not the rarer word
    del table["survived"]
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, _ = propose(tmp_path / "rows.parquet")
    assert list(config.tasks) == ["overtime"]
    config, _ = propose(tmp_path / "rows.parquet", "--label", "sex")
    assert config.tasks["sex"].label is not None
    del table["overtime"]
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    assert "a guess (--label names another)" in propose(tmp_path / "rows.parquet")[1]


def test_numbers_alone_get_a_model_that_takes_them(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    table = {"a": random.normal(size=300), "b": random.normal(size=300), "y": random.integers(0, 2, 300)}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, _ = propose(tmp_path / "rows.parquet")
    encoder = Encoder(config, dict.fromkeys("ab", "float")).fit([pa.table({n: table[n] for n in "ab"})])
    build_network(config, encoder.schema)
    assert config.training.early_stopping is not None
    steps = 300 / config.training.batch_size * config.training.epochs
    assert 500 < steps < 2000


@pytest.mark.parametrize("form", ["%m/%d/%Y %H:%M", "%d.%m.%Y", "%d %b %Y", "%Y-%m-%d"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_how_times_are_written_is_found_out(propose: Propose, tmp_path: Path, form: str, suffix: str) -> None:
    random = np.random.default_rng(9)
    moments = [datetime(2024, 1 + day % 12, 1 + day % 28) for day in random.integers(0, 300, 400)]
    users, items = random.integers(0, 30, 400), random.integers(0, 40, 400)
    frame = pd.DataFrame(
        {"user": users, "item": items, "time": [f"{one:{form}}" for one in moments], "clicked": users % 2}
    )
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False, sep=";")
    elif suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    config, _ = propose(path)
    assert config.data.train.options.get("time_format") == (None if form == "%Y-%m-%d" else form)
    assert config.data.keys.time == "time"
    dataset = open_dataset(config)
    chunks = dataset.bind(resolve(config, dataset.columns)).train.chunks()
    assert {moment for chunk in chunks for moment in chunk["time"].to_pylist()} <= set(moments)


@pytest.mark.parametrize("forms", [("%m/%d/%Y", "%d/%m/%Y"), ("%d.%m.%Y", "%d.%m.%y")])
def test_dates_in_two_forms_are_no_feature(propose: Propose, tmp_path: Path, forms: tuple[str, str]) -> None:
    random = np.random.default_rng(9)
    table = {
        "user": random.integers(0, 30, 400),
        "item": random.integers(0, 40, 400),
        "time": [
            f"{datetime(2024, 1 + day % 12, 1 + day % 28):{forms[day % 2]}}"
            for day in random.integers(0, 300, 400)
        ],
        "clicked": random.integers(0, 2, 400),
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet")
    assert "time" not in config.features
    assert "#   time: looks like a time, such as" in text


def test_a_label_of_several_words_is_a_task_of_classes(propose: Propose, tmp_path: Path) -> None:
    table = {"x": [row // 3 for row in range(300)], "the cut": ["Fair", "Good", "Ideal"] * 100}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet", "--label", "the cut")
    assert config.tasks["the cut"].type == "multiclass"
    assert "3 classes, such as 'Fair', 'Good'" in text
    pq.write_table(pa.table({**table, "species": ["a", "b", "c"] * 100}), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet")
    assert list(config.tasks) == ["species"]


def test_a_category_of_what_users_chose_is_no_label(propose: Propose, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    item = random.integers(0, 30, 600)
    table = {
        "user_id": random.integers(0, 40, 600),
        "item_id": item,
        "category": [f"kind {one % 5}" for one in item],
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    config, _ = propose(tmp_path / "rows.parquet")
    assert [task.type for task in config.tasks.values()] == ["retrieval"]


def test_nothing_to_learn_from_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"row": list(range(300)), "clicked": [0, 1] * 150}), tmp_path / "rows.parquet")
    assert run(["init", str(tmp_path / "rows.parquet")]) == 2
    assert "nothing is left to predict 'clicked' from; row: a number" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_label_of_text_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"x": list(range(30)), "the cut": [f"it's cut {row}" for row in range(30)]}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    assert run(["init", str(tmp_path / "rows.parquet"), "--label", "the cut"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "is neither a number nor one of a few words" in message
    assert "such as --label" in message


def test_faults_end_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shop: dict[str, Path]
) -> None:
    def said(*arguments: str | Path) -> str:
        assert run(["init", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "does not exist" in said(tmp_path / "nothing.csv")
    (tmp_path / "there.yaml").write_text("name: mine\n")
    assert "exists already" in said(shop["log"], "-o", tmp_path / "there.yaml")
    assert (tmp_path / "there.yaml").read_text() == "name: mine\n"
    assert "names no column of the data" in said(shop["log"], "--label", "bought == 1")
    assert "no column that the interactions have too" in said(shop["products"], "--users", shop["people"])
    pq.write_table(pa.table({"x": [1.5, 2.5], "z": [0.1, 0.2]}), tmp_path / "plain.parquet")
    assert "no column looks like a label" in said(tmp_path / "plain.parquet")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("clicked >", "is neither a column nor an expression"),
        ("clickd == 1", "names no column of the data. Did you mean 'clicked'?"),
        ("clickd", "names no column of the data. Did you mean 'clicked'?"),
        ("1 == 1", "names no column of the data"),
    ],
)
def test_a_label_that_is_none(label, words, tmp_path, capsys):
    pq.write_table(pa.table({"x": [1.5, 2.5], "clicked": [0, 1]}), tmp_path / "rows.parquet")
    assert run(["init", str(tmp_path / "rows.parquet"), "--label", label]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--label", "clicked")])
def test_two_numbers_are_a_label_too(arguments, tmp_path, propose):
    rows = {"user_id": [1, 2, 3, 4] * 9, "item_id": [1, 2, 3] * 12, "clicked": [-1, 1, -1] * 12}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet", *arguments)
    assert config.tasks["clicked"].label == "clicked == 1"
    assert "-1 or 1, and 1 is taken for yes" in text


def test_what_cannot_be_read_is_left_out_and_named(tmp_path, propose):
    rows = {
        "clicked": [0, 1] * 100,
        "color": ["red", "blue", "green", "red"] * 50,
        "deep": [[[1], [2]]] * 200,
        "bytes": [b"x\xff"] * 200,
        "large": pa.array([2**63] * 200, pa.uint64()),
        "price": [*(f"{row}.5" for row in range(199)), "cheap"],
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet")
    assert set(config.features) == {"color"}
    assert "#   deep: list<element: list<element: int64>>, which no feature reads" in text
    assert "#   bytes: holds b'x\\xff', which is not read as string" in text
    assert "#   large: holds 9223372036854775808, which is not read as int64" in text
    assert "#   price: numbers, but not in 1 of 200 rows, such as 'cheap'" in text


def test_numbers_of_a_list_are_ids_and_amounts_are_not(tmp_path, propose):
    random = np.random.default_rng(0)
    rows = {
        "student": random.integers(1, 1001, 8000),
        "teacher": random.choice(random.permutation(2000)[:1000], 8000)
        + 1,  # half of them are in other tables
        "waited": random.geometric(0.004, 8000),  # as dense, but the small ones come most often
        "year": random.integers(1500, 2025, 8000),
        "passed": random.integers(0, 2, 8000),
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    config, text = propose(tmp_path / "rows.parquet")
    assert {name: feature.type for name, feature in config.features.items()} == {
        "student": "id",
        "teacher": "id",
        "waited": "number",
        "year": "number",
    }
    assert "whole numbers all over 1 to 1000" in text


def test_a_name_twice_is_no_line_of_data(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("user,item,item,clicked\n" + "1,2,3,1\n4,5,6,0\n" * 20)
    assert run(["init", str(tmp_path / "rows.csv")]) == 2
    assert "two columns are called 'item'" in capsys.readouterr().err


def test_bytes_are_no_delimited_text(tmp_path, capsys):
    (tmp_path / "rows.csv").write_bytes(b"a\rb\x01\xff,c\r\rd\n" * 50)
    assert run(["init", str(tmp_path / "rows.csv")]) == 2
    assert "is no delimited text" in capsys.readouterr().err


def test_it_prints_where_no_file_is_named(shop: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", str(shop["log"])]) == 0
    assert "features:\n" in capsys.readouterr().out


def test_public_files_are_understood(propose: Propose, public_data: Path) -> None:
    small = public_data / "ml-latest-small"
    config, _ = propose(small / "ratings.csv", "--items", small / "movies.csv")
    assert types(config) == {"userId": "id", "movieId": "id", "genres": "tags", "recent": "sequence"}
    config, _ = propose(public_data / "census-income_kdd" / "census-income.test.gz")
    assert config.tasks["label"].label == 'column_42 == "50000+."'
    assert len(config.features) == 41
