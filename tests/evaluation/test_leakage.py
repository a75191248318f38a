"""Planted leaks are found, clean data are left alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evaluation import DataError, check_leakage


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    generator = np.random.default_rng(0)

    def rows(count: int, start: int) -> pd.DataFrame:
        label = generator.integers(0, 2, count)
        return pd.DataFrame(
            {
                "user": generator.integers(0, 10**9, count),
                "item": generator.integers(0, 10_000, count),
                "time": np.arange(start, start + count),
                "age": label * 0.3 + generator.normal(size=count),
                "city": generator.choice(list("abc"), count),
                "label": label,
            }
        )

    return rows(2000, 0), rows(1000, 2000)


KEYS = {"label": "label", "user": "user", "item": "item", "time": "time"}


def found(report: Any) -> set[tuple[str, str]]:
    return {(one.severity, one.check) for one in report.findings}


def test_clean_data_are_left_alone(sides: Any) -> None:
    report = check_leakage(*sides, **KEYS)
    assert report.is_clean
    assert not report.findings
    assert "No sign of leakage" in str(report)


def test_the_same_rows_on_both_sides(sides: Any) -> None:
    train, after = sides
    report = check_leakage(train, pd.concat([after, train[:50]]), **KEYS)
    assert {("leak", "same rows"), ("note", "same keys"), ("note", "time")} <= found(report)
    assert "50 evaluation rows" in report.findings[0].message
    assert not report.is_clean


def test_evaluation_before_training(sides: Any) -> None:
    report = check_leakage(sides[1], sides[0], **KEYS)
    assert found(report) == {("note", "time")}
    assert report.is_clean
    assert "100.0 %" in str(report)


def test_a_feature_that_knows_the_future(sides: Any) -> None:
    train, after = (one.assign(seen_at=one["time"] - 5) for one in sides)
    assert check_leakage(train, after, **KEYS, feature_times={"age": "seen_at"}).is_clean
    after.loc[:9, "seen_at"] = after["time"] + 1
    report = check_leakage(train, after, **KEYS, feature_times={"age": "seen_at"})
    assert found(report) == {("leak", "time")}
    assert "'age' is from after its own row in 10 evaluation rows" in report.findings[0].message


@pytest.mark.parametrize("kind", ["number", "reversed", "missing", "text", "missing text"])
def test_a_feature_made_from_the_label(sides: Any, kind: str) -> None:
    def planted(one: pd.DataFrame) -> Any:
        return {
            "number": one["label"] * 2.0 + 1,
            "reversed": -one["label"],
            "missing": np.where(one["label"] == 1, 1.0, np.nan),
            "text": np.where(one["label"] == 1, "bought", "none"),
            "missing text": np.where(one["label"] == 1, "bought", None),
        }[kind]

    train, after = (one.assign(told=planted(one)) for one in sides)
    report = check_leakage(train, after, **KEYS)
    assert found(report) == {("suspicion", "feature")}
    assert report.findings[0].share > 0.98
    assert "'told' alone" in report.to_markdown()


def test_an_id_of_many_values_is_not_taken_for_a_leak(sides: Any) -> None:
    train, after = (one.assign(code=[f"c{row}" for row in one["time"]]) for one in sides)
    assert check_leakage(train, after, **KEYS).is_clean


def test_missing_text_is_left_alone(sides: Any) -> None:
    train, after = (one.assign(word=np.where(one["time"] % 3 == 0, None, "word")) for one in sides)
    assert check_leakage(train, after, **KEYS).is_clean


def test_an_unknown_column_is_named(sides: Any) -> None:
    with pytest.raises(DataError, match="did you mean 'label'"):
        check_leakage(*sides, label="lable")


def test_a_label_of_text_is_refused(sides: Any) -> None:
    with pytest.raises(DataError, match="column 'city' must hold numbers, got text"):
        check_leakage(*sides, label="city")
