"""Both evaluators against a scalar interpreter in plain Python that never sees the parser or its tree."""

import math
import operator
from datetime import UTC, date, datetime

import hypothesis.strategies as st
import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings

from easyrec.config.expressions import ExpressionError, parse
from easyrec.data.expressions import arrow_kind, to_arrow
from easyrec.data.ibis_expressions import to_ibis
from easyrec.errors import DataError

TABLE = pa.table(
    {
        "i": pa.array([1, -2, None, 4, 2**53 + 1]),
        "f": pa.array([0.1, math.nan, None, math.inf, -3.5], pa.float32()),
        "s": pa.array(["a", None, "é", "", "b"]).dictionary_encode(),
        "b": pa.array([True, False, None, True, False]),
        "time": pa.array(
            [
                datetime(2024, 1, 31),
                None,
                datetime(2024, 1, 31, 12),
                datetime(2025, 1, 1),
                datetime(1969, 1, 1),
            ],
            pa.timestamp("ms"),
        ),
        "zoned": pa.array(
            [datetime(2024, 1, 31, tzinfo=UTC), None, datetime(2024, 1, 31, 12, tzinfo=UTC), None, None],
            pa.timestamp("ns", "Asia/Tokyo"),
        ),
        "day": pa.array([date(2024, 1, 31), None, date(2024, 2, 1), None, None]),
        "list": pa.array([[1], None, [], [2, 3], [None]]),
        "raw": pa.array([b"x", None, None, None, None]),
        "unsigned": pa.array([2**63 + 5, 1, 2, 3, None], pa.uint64()),
    }
)
USABLE = TABLE.drop_columns(["raw", "unsigned"])


def both(text, table=USABLE):
    expression = parse(text)
    arrow = to_arrow(expression, table).to_pylist()
    source = ibis.memtable(table)
    assert source.select(value=to_ibis(expression, source)).to_pyarrow()["value"].to_pylist() == arrow
    return arrow


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i >= 1", [True, False, None, True, True]),
        ("f > 0", [True, None, None, True, False]),
        ("f is null", [False, True, True, False, False]),
        ("f == 0.1", [False, None, None, False, False]),
        ("i / 0 is null", [True] * 5),
        ("i / (i - 1)", [None, 2 / 3, None, 4 / 3, 2.0**53 / (2.0**53 - 1)]),
        ("f - f", [0.0, None, None, None, 0.0]),
        ("s < 'b'", [True, None, False, True, False]),
        ("s not in ['a', 'é']", [False, None, False, True, True]),
        ("i in [1, 2.5]", [True, False, None, False, False]),
        ("b == 1", [True, False, None, True, False]),
        ("b + 1", [2.0, 1.0, None, 2.0, 1.0]),
        ("b or s is null", [True, True, None, True, False]),
        ("b and i > 0", [True, False, None, True, False]),
        ("time > '2024-01-31T11:00:00'", [False, None, True, True, False]),
        ("time in ['2024-01-31', '2025-01-01']", [True, None, False, True, False]),
        ("zoned >= '2024-01-31T13:00:00+01:00'", [False, None, True, None, None]),
        ("day <= '2024-01-31'", [True, None, False, None, None]),
        ("day == time", [True, None, False, None, None]),
        ("list is null", [False, True, False, False, False]),
        ("3 > 2", [True] * 5),
        ("1e308 * 10", [None] * 5),
    ],
)
def test_values(text, expected):
    assert both(text) == expected


def test_large_integers_stay_exact():
    assert both(f"i == {2**53 + 1}") == [False, False, None, False, True]
    assert both(f"i == {2**53}") == [False, False, None, False, False]


def test_integers_that_float64_cannot_hold_compare_with_floats():
    assert both("i > 0.5") == [True, False, None, True, True]
    assert both(f"f < {2**60 + 1}") == [True, None, None, False, True]
    assert both(f"f in [{2**60 + 1}]") == [False, None, None, False, False]


def test_an_empty_table_gives_no_rows():
    assert both("i > 1 and s == 'a'", USABLE.slice(0, 0)) == []


def test_chunks_and_batches_are_evaluated_like_one_array():
    chunked = pa.concat_tables([USABLE.slice(0, 2), USABLE.slice(2)])
    expected = to_arrow(parse("i > 0 or s == 'é'"), USABLE)
    assert to_arrow(parse("i > 0 or s == 'é'"), chunked) == expected
    assert to_arrow(parse("i > 0 or s == 'é'"), USABLE.to_batches()[0]) == expected


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("j > 1", ExpressionError, "no such column: 'j'"),
        ("s > 1", ExpressionError, "cannot be compared"),
        ("raw == 'x'", DataError, "'raw' is of type binary, which expressions cannot use"),
        ("time == zoned", ExpressionError, "one of these timestamps has a time zone"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_by_both(text, error, message):
    with pytest.raises(error, match=message):
        to_arrow(parse(text), TABLE)
    with pytest.raises(error, match=message):
        to_ibis(parse(text), ibis.memtable(TABLE))


def test_integers_beyond_int64_are_refused():
    with pytest.raises(DataError, match="'unsigned' holds integers beyond"):
        to_arrow(parse("unsigned > 1"), TABLE)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.decimal128(9, 2), "float"),
        (pa.float16(), "float"),
        (pa.uint8(), "int"),
        (pa.date32(), "timestamp"),
        (pa.large_list(pa.string()), "list<string>"),
        (pa.list_(pa.float32(), 3), "list<float>"),
        (pa.map_(pa.string(), pa.float32()), "map"),
        (pa.list_(pa.list_(pa.int8())), None),
        (pa.binary(), None),
        (pa.struct({"a": pa.int8()}), None),
    ],
)
def test_kinds_of_arrow_types(type_, kind):
    assert arrow_kind(type_) == kind


# Each strategy draws a pair: the text of an expression, and a function from a row to its value. The functions are
# the oracle: three-valued logic written out in plain Python.


def _plain(value):
    return None if isinstance(value, float) and math.isnan(value) else value


def _finite(value):
    return value if value is not None and math.isfinite(value) else None


def _lift(function):
    return lambda *values: None if None in values else function(*values)


def _arithmetic(sign, left, right):
    if left is None or right is None:
        return None
    left, right = float(left), float(right)
    if sign == "/":
        return _finite(left / right) if right else None
    return _finite({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right))


def _and(values):
    return False if False in values else None if None in values else True


def _or(values):
    return True if True in values else None if None in values else False


COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
whole = st.integers(-3, 3)
number_constants = st.one_of(whole, st.sampled_from([0.5, -2.25, 1e-3])).map(
    lambda v: (repr(v), lambda row: v)
)
number_columns = st.sampled_from(["i", "f", "`w w`"]).map(
    lambda n: (n, lambda row: _plain(row[n.strip("`")]))
)


def _deeper_numbers(inner):
    binary = st.tuples(st.sampled_from("+-*/"), inner, inner).map(
        lambda t: (f"({t[1][0]} {t[0]} {t[2][0]})", lambda row: _arithmetic(t[0], t[1][1](row), t[2][1](row)))
    )
    negative = inner.map(lambda e: (f"-({e[0]})", lambda row: _lift(lambda v: -float(v))(e[1](row))))
    return binary | negative


numbers = st.recursive(number_constants | number_columns, _deeper_numbers, max_leaves=4)
strings = st.one_of(
    st.sampled_from(["", "a", "ab", "é", "z"]).map(lambda v: (f'"{v}"', lambda row: v)),
    st.just(("s", lambda row: row["s"])),
)


def _compare(pair):
    return st.tuples(st.sampled_from(sorted(COMPARE)), pair, pair).map(
        lambda t: (
            f"{t[1][0]} {t[0]} {t[2][0]}",
            lambda row: _lift(COMPARE[t[0]])(t[1][1](row), t[2][1](row)),
        )
    )


memberships = st.tuples(
    numbers, st.lists(whole | st.sampled_from([0.5]), min_size=1, max_size=3), st.booleans()
).map(
    lambda t: (
        f"{t[0][0]} {'not in' if t[2] else 'in'} {t[1]!r}",
        lambda row: _lift(lambda v: (v in t[1]) != t[2])(t[0][1](row)),
    )
)
null_tests = st.tuples(numbers | strings, st.booleans()).map(
    lambda t: (
        f"{t[0][0]} is {'not ' if t[1] else ''}null",
        lambda row: (t[0][1](row) is None) != t[1],
    )
)


def _deeper_conditions(inner):
    def logical(word, function):
        return st.lists(inner, min_size=2, max_size=3).map(
            lambda es: (
                "(" + f" {word} ".join(e[0] for e in es) + ")",
                lambda row: function([e[1](row) for e in es]),
            )
        )

    negated = inner.map(lambda e: (f"not ({e[0]})", lambda row: _lift(operator.not_)(e[1](row))))
    return logical("and", _and) | logical("or", _or) | negated


conditions = st.recursive(
    _compare(numbers) | _compare(strings) | memberships | null_tests | st.just(("b", lambda row: row["b"])),
    _deeper_conditions,
    max_leaves=4,
)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-4, 4),
        "f": st.none() | st.sampled_from([math.nan, 0.0, -0.0, 0.5, -2.25, 3.0]),
        "w w": st.none() | st.integers(-1, 1),
        "s": st.none() | st.sampled_from(["", "a", "ab", "é", "zz"]),
        "b": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema(
    {"i": pa.int32(), "f": pa.float64(), "w w": pa.int64(), "s": pa.large_string(), "b": pa.bool_()}
)


@settings(max_examples=150, deadline=None)
@given(conditions | numbers, st.lists(rows, min_size=1, max_size=6))
def test_arrow_agrees_with_plain_python(pair, data):
    text, oracle = pair
    result = to_arrow(parse(text), pa.Table.from_pylist(data, SCHEMA)).to_pylist()
    assert result == pytest.approx([oracle(row) for row in data])


@settings(max_examples=40, deadline=None)
@given(st.lists(conditions | numbers, min_size=1, max_size=8), st.lists(rows, min_size=1, max_size=6))
def test_ibis_agrees_with_plain_python(pairs, data):
    source = ibis.memtable(pa.Table.from_pylist(data, SCHEMA))
    result = source.select(**{f"v{n}": to_ibis(parse(text), source) for n, (text, _) in enumerate(pairs)})
    values = result.to_pyarrow()
    for n, (_, oracle) in enumerate(pairs):
        assert values[f"v{n}"].to_pylist() == pytest.approx([oracle(row) for row in data])
