"""`easyrec ab` as a user runs it."""

import json
from pathlib import Path

import pandas as pd
import pytest

from easyrec.cli.main import run

START = 1_767_225_600.0
DAY = 86_400.0
FILE = """\
version: 1
layers:
  ranking: {owns: [model]}
experiments:
  din:
    layer: ranking
    status: running
    percent: 100
    variants:
      control: {}
      din: {overrides: {model: din}}
    metrics: {goals: [ctr]}
    analysis: {min_days: 2, planned_n: 600, cuped_days: 1}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "experiments.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def logs(tmp_path, file) -> Path:
    """An exposure a user, two impressions, and a click of every second user; of treated users, of all."""
    from evaluation.abtest.compilation import compile_assigner
    from evaluation.abtest.loading import load_experiments

    assigner = compile_assigner(load_experiments(file))
    exposures, events = [], []
    for user in range(600):
        variant = assigner.assign({"user_id": user}).assignments[0].variant
        at = START + user * 400.0
        exposures.append(
            {
                "timestamp": at,
                "request_id": f"r{user}",
                "unit_id": str(user),
                "experiment": "din",
                "phase": 1,
                "variant": variant,
            }
        )
        likes = user % 2 == 0 or variant == "din"
        kinds = ["impression", "impression", *(["click"] if likes else [])]
        events += [
            {"type": kind, "timestamp": at + 5, "user_id": user, "request_id": f"r{user}"} for kind in kinds
        ]
        events.append(
            {"type": "impression", "timestamp": at - 60, "user_id": user, "request_id": f"old{user}"}
        )
    for name, rows in (("exposures", exposures), ("events", events)):
        (tmp_path / name).mkdir()
        pd.DataFrame(rows).to_parquet(tmp_path / name / "part.parquet", index=False)
    return tmp_path


def test_validate_and_a_refusal(file, capsys):
    assert run(["ab", "validate", str(file)]) == 0
    assert (
        "din: running, phase 1, layer ranking, 100% of traffic; control 1, din 1" in capsys.readouterr().out
    )
    file.write_text(FILE.replace("percent", "prcent"), encoding="utf-8")
    assert run(["ab", "validate", str(file)]) == 2
    error = capsys.readouterr().err
    assert f"{file}:8" in error
    assert "did you mean 'percent'" in error


def test_validate_against_the_live_file(file, tmp_path, capsys):
    new = tmp_path / "new.yaml"
    new.write_text(FILE.replace("percent: 100", "percent: 10"), encoding="utf-8")
    assert run(["ab", "validate", str(new), "--previous", str(file)]) == 2
    assert "9000 buckets away" in capsys.readouterr().err


def test_assign(file, capsys):
    assert run(["ab", "assign", str(file), "--unit", "7", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["assignments"][0]["experiment"] == "din"
    assert run(["ab", "assign", str(file), "--unit", "user_id=7", "--attribute", "country=NO"]) == 0
    assert "ranking: din / " in capsys.readouterr().out
    assert run(["ab", "assign", str(file), "--unit", "7", "--at", "soon"]) == 2


@pytest.mark.parametrize("unit", ["device=7", "user_id=", ""])
def test_a_unit_that_no_layer_draws_on_or_without_an_id_gets_no_variant(file, capsys, unit):
    assert run(["ab", "assign", str(file), "--unit", unit]) == 0
    assert "no variant (no_unit" in capsys.readouterr().out


def test_allocate(file, capsys):
    assert run(["ab", "allocate", str(file), "--write"]) == 0
    assert "segments: [[0, 10000]]" in file.read_text(encoding="utf-8")
    assert run(["ab", "allocate", str(file)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_analyze(file, logs, capsys):
    places = ["--exposures", str(logs / "exposures"), "--events", str(logs / "events")]
    assert run(["ab", "analyze", str(file), "din", *places, "--report", str(logs / "report")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("SHIP")
    assert "easyrec ab analyze" in (logs / "report" / "experiment.html").read_text(encoding="utf-8")
    assert run(["ab", "analyze", str(file), "din", *places, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["word"] == "ship"


def test_report(file, logs, capsys):
    places = ["--exposures", str(logs / "exposures"), "--events", str(logs / "events")]
    assert run(["ab", "report", str(file), *places, "-o", str(logs / "all")]) == 0
    assert "din: ship" in capsys.readouterr().out
    assert (logs / "all" / "din" / "experiment.md").exists()


def test_plan_and_aa(file, logs, capsys):
    assert run(["ab", "plan", str(file), "din", "--events", str(logs / "events"), "--mde", "0.1"]) == 0
    assert "planned_n:" in capsys.readouterr().out
    assert run(["ab", "aa", str(file), "din", "--events", str(logs / "events"), "--runs", "50"]) == 0
    assert "50 splits" in capsys.readouterr().out


@pytest.mark.parametrize("mde", ["0", "-0.1", "nan"])
def test_an_effect_that_is_none_is_not_planned_for(file, logs, capsys, mde):
    assert run(["ab", "plan", str(file), "din", "--events", str(logs / "events"), "--mde", mde]) == 2
    assert "a share above 0" in capsys.readouterr().err


def test_metrics_that_the_past_does_not_tell_are_left_out_and_named(file, logs, capsys):
    file.write_text(FILE.replace("goals: [ctr]", "goals: [ctr], secondary: [retention_d7]"), encoding="utf-8")
    past = ["--events", str(logs / "events")]
    assert run(["ab", "plan", str(file), "din", *past, "--mde", "0.1"]) == 0
    assert "past events do not tell: retention_d7" in capsys.readouterr().out
    assert run(["ab", "aa", str(file), "din", *past, "--runs", "20"]) == 0
    assert "too few users differ: retention_d7" in capsys.readouterr().out


def test_exposures(logs, capsys):
    target = logs / "growthbook.csv"
    assert run(["ab", "exposures", str(logs / "exposures"), "--growthbook", str(target)]) == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 601
    assert run(["ab", "exposures", str(logs / "exposures")]) == 0
    assert "1 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dinn"], "did you mean 'din'"),
        (["din", "--rename", "type"], "expected NAME=VALUE"),
        (["din", "--memory", "lots"], "a size is written like 4GB"),
        (["din", "--memory", "-1GB"], "a size is written like 4GB"),
        (["din", "--memory", "1KB"], "at least 200MB"),
        (["din", "--engine", "sparc"], "did you mean 'spark'"),
    ],
)
def test_wrong_requests(file, logs, capsys, arguments, words):
    places = ["--exposures", str(logs / "exposures"), "--events", str(logs / "events")]
    assert run(["ab", "analyze", str(file), *arguments, *places]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "internal error" not in error


def test_missing_logs(file, tmp_path, capsys):
    assert run(["ab", "analyze", str(file), "din", "--exposures", str(tmp_path / "none")]) == 2
    assert "There are no logs in" in capsys.readouterr().err


def test_holdout(file, logs, capsys):
    arguments = ["ab", "holdout", str(file), "--events", str(logs / "events")]
    assert run(arguments) == 2
    assert "give it `holdout: {percent: 2}`" in capsys.readouterr().err
    file.write_text(FILE + "holdout: {percent: 40}\n", encoding="utf-8")
    assert run([*arguments, "--since", "2026-01-01", "--report", str(logs / "report")]) == 0
    shown = capsys.readouterr()
    assert "launched against holdout: Goals" in shown.out
    assert "CTR" in shown.out
    assert (logs / "report" / "experiment.html").exists()
    assert run([*arguments, "--metric", "crt"]) == 2
    assert "did you mean 'ctr'" in capsys.readouterr().err
