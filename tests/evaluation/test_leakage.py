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


def test_classes_of_text_are_labels_too(sides: Any) -> None:
    train, after = (one.assign(told=one["city"].str.upper()) for one in sides)
    report = check_leakage(train, after, **{**KEYS, "label": "city"})
    assert found(report) == {("suspicion", "feature")}
    assert "'told' alone" in report.findings[0].message
    words = {**KEYS, "label": "word"}
    with pytest.raises(DataError, match="at most 20 classes, got 1,000 different texts"):
        check_leakage(*(one.assign(word=[f"w{row}" for row in range(len(one))]) for one in sides), **words)


def test_rows_that_few_values_make_equal_are_no_leak() -> None:
    generator = np.random.default_rng(3)
    train, after = (
        pd.DataFrame({"sex": generator.choice(["f", "m"], n), "age": generator.integers(1, 6, n)}).assign(
            label=generator.integers(0, 2, n)
        )
        for n in (3000, 800)
    )
    report = check_leakage(train, after, label="label")
    assert found(report) == {("note", "same rows")}
    assert "do not tell rows apart" in report.findings[0].message


@pytest.mark.parametrize(
    "change",
    [
        {"user": str, "item": str},
        {"user": float, "item": "int32", "label": float},
        {"user": "string", "label": "Int64"},
        {"time": str, "city": "category"},
    ],
)
def test_rows_are_the_same_whatever_their_types(sides: Any, change: dict[str, Any]) -> None:
    train, after = sides
    copied = pd.concat([after, train[:50]], ignore_index=True).astype(change)
    report = check_leakage(train, copied, **KEYS)
    assert {("leak", "same rows"), ("note", "same keys")} <= found(report)
    assert "50 evaluation rows" in report.findings[0].message


def test_large_keys_are_told_apart(sides: Any) -> None:
    train, after = (one.assign(user=2**60 + one["time"]) for one in sides)
    assert check_leakage(train, after, **KEYS).is_clean


def test_times_with_and_without_a_zone_and_as_text(sides: Any) -> None:
    train, after = sides
    start = pd.Timestamp("2026-01-01")
    zoned = train.assign(time=(start + pd.to_timedelta(train["time"], unit="h")).dt.tz_localize("UTC"))
    later = start + pd.to_timedelta(after["time"], unit="h")
    for times in (later, later.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"), later.astype(str)):
        assert not check_leakage(zoned, after.assign(time=times), **KEYS).findings
    early = later - pd.Timedelta(days=365)
    assert found(check_leakage(zoned, after.assign(time=early), **KEYS)) == {("note", "time")}
    text = after.assign(time=[str(one) for one in after["time"]])  # "999" is before "2000"
    assert not check_leakage(train.assign(time=train["time"].astype(str)), text, **KEYS).findings
    with pytest.raises(DataError, match=r"Column 'time' must hold times, got 'soon' in row 4"):
        check_leakage(train, after.assign(time=[1, 2, 3, 4, "soon", *[5] * (len(after) - 5)]), **KEYS)


@pytest.mark.parametrize("kind", ["hump", "parity", "far"])
def test_a_feature_that_tells_without_rising_with_the_label(sides: Any, kind: str) -> None:
    generator = np.random.default_rng(1)

    def told(rows: pd.DataFrame) -> Any:
        n, is_one = len(rows), rows["label"] == 1
        if kind == "hump":
            return np.where(is_one, 0, generator.choice([-1, 1], n))
        if kind == "parity":
            return 2 * generator.integers(0, 50, n) + is_one
        return np.where(
            is_one, generator.normal(0, 0.1, n), generator.choice([-1, 1], n) * (5 + generator.random(n))
        )

    report = check_leakage(*(one.assign(told=told(one)) for one in sides), **KEYS)
    assert found(report) == {("suspicion", "feature")}


def test_a_handful_of_positives_raises_no_suspicion(sides: Any) -> None:
    train, after = sides
    report = check_leakage(train, after.assign(label=(np.arange(len(after)) == 3).astype(int)), **KEYS)
    assert report.is_clean
    assert "fewer than 10 rows" in str(report)


def test_columns_of_lists_are_passed_over_and_empty_tables_refused(sides: Any) -> None:
    train, after = (one.assign(words=[[1] * (row % 3) for row in range(len(one))]) for one in sides)
    report = check_leakage(train, after, **KEYS)
    assert report.is_clean
    assert "not columns of lists (words)" in str(report)
    with pytest.raises(DataError, match="The evaluation table has no rows"):
        check_leakage(train, after[:0], **KEYS)


def test_only_the_evaluation_rows_need_the_times_of_features(sides: Any) -> None:
    train, after = sides
    report = check_leakage(train, after.assign(when=after["time"] + 5), **KEYS, feature_times={"age": "when"})
    assert ("leak", "time") in found(report)
