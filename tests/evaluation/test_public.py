"""The public surface of the package, and what importing it costs."""

import pkgutil
import subprocess
import sys

import pytest

import evaluation


def test_every_public_name_loads_and_is_listed() -> None:
    assert set(dir(evaluation)) == set(evaluation.__all__)
    for name in evaluation.__all__:
        assert getattr(evaluation, name) is not None
    assert sorted(evaluation._HOME) == sorted(evaluation.__all__)
    assert callable(evaluation.evaluate)


def test_no_public_name_is_hidden_by_a_module() -> None:
    # Importing evaluation.x sets the attribute x of the package, whatever was meant by it.
    modules = {module.name for module in pkgutil.iter_modules(evaluation.__path__)}
    assert not modules & set(evaluation.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        evaluation.evalute  # noqa: B018  # the access is what is tested


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import evaluation; evaluation.parse_metric('ndcg@10')",
            ["pandas", "matplotlib", "scipy", "tensorflow"],
        ),
        (
            "from evaluation import evaluate, evaluate_ranking, fit_baselines",
            ["matplotlib", "tensorflow", "keras"],
        ),
        ("from evaluation import write_report", ["tensorflow", "matplotlib.pyplot"]),
    ],
)
def test_nothing_heavy_is_imported_early(code: str, absent: list[str]) -> None:
    check = f"{code}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
