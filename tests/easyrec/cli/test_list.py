import pytest

from easyrec.cli.main import run
from easyrec.config.data import READERS
from easyrec.config.features import FEATURES
from easyrec.config.models import MODELS
from easyrec.config.tasks import LOSSES, TASKS
from evaluation.metrics.registry import METRICS


@pytest.fixture
def listed(capsys):
    def lines(*arguments):
        assert run(["list", *arguments]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out.splitlines()

    return lines


@pytest.mark.parametrize(
    ("family", "registry"),
    [("features", FEATURES), ("models", MODELS), ("tasks", TASKS), ("losses", LOSSES), ("readers", READERS)],
)
def test_every_part_has_a_line_with_summary_and_options(listed, family, registry):
    header, *rows = listed(family)
    assert header.split() == ["name", "what", "it", "is", "options"]
    assert [row.split()[0] for row in rows] == registry.names()
    for row, part in zip(rows, registry, strict=True):
        assert part.summary in row
        assert all(option in row for option in part.config.model_fields if option != "type")


def test_metrics_are_those_of_evaluation(listed):
    _, *rows = listed("metrics")
    assert [row.split()[0] for row in rows] == list(METRICS)
    assert all(metric.doc in row for row, metric in zip(rows, METRICS.values(), strict=True))


def test_one_part_shows_its_options(listed):
    first, _, *rows = listed("models", "dcn_v2")
    assert first == "dcn_v2: Explicit bounded-degree crosses and a deep part (Wang et al. 2021)."
    shown = {row.split()[0]: " ".join(row.split()[1:]) for row in rows}
    assert shown["cross_layers"] == "integer 3 Number of cross layers."
    assert shown["hidden_units"].startswith("list of integer [256, 128, 64] ")
    assert shown["structure"].startswith("parallel, stacked parallel ")


def test_required_options_are_marked(listed):
    rows = {row.split()[0]: row for row in listed("features", "cross")[2:]}
    assert "required" in rows["buckets"]
    assert "required" not in rows["column"]


def test_one_metric(listed):
    assert len(listed("metrics", "auc")) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["models", "depfm"], 2, "error: unknown model 'depfm'. Did you mean 'deepfm'?\n"),
        (["metrics", "acu"], 2, "error: unknown metric 'acu'. Did you mean 'auc'?\n"),
    ],
)
def test_unknown_names(capsys, arguments, code, message):
    assert run(["list", *arguments]) == code
    assert capsys.readouterr().err == message
