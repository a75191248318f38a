import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.cli.main import run
from easyrec.config.loader import load_config

SHIPPED = sorted((Path(__file__).parents[3] / "feature_configs").glob("*.yaml"))
TEXT = """\
data: {train: train.parquet, keys: {user: user_id, item: item_id, time: at}}
features:
  user_id: id
  item_id: id
  "n*": number
model: deepfm
tasks: {clicked: binary}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(TEXT)
    return tmp_path


@pytest.fixture
def data(here):
    table = pa.table(
        {
            "user_id": [1, 2],
            "item_id": ["a", "b"],
            "at": [1, 2],
            "n1": [0.5, 1],
            "n2": [3, 4],
            "clicked": [0, 1],
        }
    )
    pq.write_table(table, here / "train.parquet")
    return here


def test_a_configuration_that_fits_its_data(data, capsys):
    assert run(["validate", "pipeline.yaml"]) == 0
    captured = capsys.readouterr()
    assert (
        captured.out == "pipeline.yaml is valid and fits the data: 4 features, model deepfm, task clicked\n"
    )
    assert captured.err == ""


def test_data_that_are_not_here_are_left_out(here, capsys):
    assert run(["validate", "pipeline.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "pipeline.yaml is valid: 3 features, model deepfm, task clicked\n"
    assert captured.err == "note: the data were not looked at: train.parquet is not here\n"
    assert run(["validate", "pipeline.yaml", "--no-data"]) == 0
    assert capsys.readouterr().err == ""


def test_columns_that_the_data_lack(data, capsys):
    assert (
        run(["validate", "pipeline.yaml", "--set", "features.itm_id=id", "--set", "data.keys.time=when"]) == 2
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "--set  data.keys.time  the data have no column 'when'. Known: at, clicked, item_id, n1, n2, user_id.\n"
        "--set  features.itm_id  the data have no column 'itm_id'. Did you mean 'item_id'?\n"
        "error: 2 problems in the configuration\n"
    )


def test_damaged_data_fail(data, capsys):
    content = (data / "train.parquet").read_bytes()
    (data / "train.parquet").write_bytes(content[: len(content) // 2])
    assert run(["validate", "pipeline.yaml"]) == 2
    assert "train.parquet" in capsys.readouterr().err


def test_all_problems_are_printed(here, capsys):
    (here / "pipeline.yaml").write_text(TEXT.replace("binary", "binry").replace("keys", "kyes"))
    assert run(["validate", "pipeline.yaml"]) == 2
    assert capsys.readouterr().err == (
        "pipeline.yaml:1  data.kyes  unknown option. Did you mean 'keys'?\n"
        "pipeline.yaml:7  tasks.clicked  unknown task type 'binry'. Did you mean 'binary'?\n"
        "error: 2 problems in the configuration\n"
    )


def test_metrics_and_baselines_are_looked_up(here, capsys):
    arguments = [
        "--set",
        "tasks.clicked={type: binary, metrics: [acu]}",
        "--set",
        "evaluation.baselines=[best]",
    ]
    assert run(["validate", "pipeline.yaml", *arguments]) == 2
    err = capsys.readouterr().err
    assert "--set  tasks.clicked.metrics.0  Unknown metric 'acu'; did you mean 'auc'?" in err
    assert "--set  evaluation.baselines.0  unknown baseline 'best'." in err


def test_show_prints_what_loads_again(data, capsys):
    assert run(["validate", "pipeline.yaml", "--show"]) == 0
    (data / "resolved.yaml").write_text(capsys.readouterr().out)
    resolved = load_config(data / "resolved.yaml")
    assert list(resolved.features) == ["user_id", "item_id", "n1", "n2"]
    assert resolved.features["user_id"].side == "user"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["validate", str(path), "--no-data"]) == 0, capsys.readouterr().err


def test_it_is_quick(here):
    started = time.perf_counter()
    assert run(["validate", "pipeline.yaml", "--no-data"]) == 0
    assert time.perf_counter() - started < 5
