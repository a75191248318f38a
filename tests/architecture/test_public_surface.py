"""What users import: the names are few, documented, and change only on purpose."""

import inspect

import easyrec
import evaluation


def test_the_names_of_easyrec_are_these():
    assert easyrec.__all__ == [
        "Bundle",
        "EasyRecError",
        "Run",
        "evaluate_run",
        "load",
        "load_config",
        "train",
    ]


def test_every_public_name_loads_and_is_documented():
    for package in (easyrec, evaluation):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{package.__name__}.{name}"


def test_public_names_are_listed_for_completion():
    assert set(easyrec.__all__) <= set(dir(easyrec))
    assert set(evaluation.__all__) <= set(dir(evaluation))
