import pickle

import pytest

from easyrec.config.expression_types import check_types, require_condition
from easyrec.config.expressions import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    ExpressionError,
    Logical,
    Membership,
    Negate,
    Not,
    NullTest,
    columns,
    parse,
    parse_reference,
)
from easyrec.errors import ConfigError

KINDS = {
    "rating": "float",
    "count": "int",
    "genre": "string",
    "clicked": "bool",
    "time": "timestamp",
    "tags": "list<string>",
    "weights": "map",
}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("rating >= 4", Comparison(">=", Column("rating"), Constant(4))),
        ("a+b*2", Arithmetic("+", Column("a"), Arithmetic("*", Column("b"), Constant(2)))),
        ("a-b-c", Arithmetic("-", Arithmetic("-", Column("a"), Column("b")), Column("c"))),
        ("(a-b)*-c", Arithmetic("*", Arithmetic("-", Column("a"), Column("b")), Negate(Column("c")))),
        (
            "a or b and not c",
            Logical("or", (Column("a"), Logical("and", (Column("b"), Not(Column("c")))))),
        ),
        ("a AND b And c", Logical("and", (Column("a"), Column("b"), Column("c")))),
        ("not a == 1", Not(Comparison("==", Column("a"), Constant(1)))),
        ("a in [1, -2.5, 'x', true]", Membership(Column("a"), tuple(map(Constant, (1, -2.5, "x", True))))),
        ("a not in ['x']", Membership(Column("a"), (Constant("x"),), negated=True)),
        ("a is null", NullTest(Column("a"))),
        ("a + 1 is not null", NullTest(Arithmetic("+", Column("a"), Constant(1)), negated=True)),
        ("`a b` == `in``y`", Comparison("==", Column("a b"), Column("in`y"))),
        ("größe == .5e1", Comparison("==", Column("größe"), Constant(5.0))),
        (r"""s != "it's \"so\"\n\\" """, Comparison("!=", Column("s"), Constant('it\'s "so"\n\\'))),
        ("9223372036854775807", Constant(9223372036854775807)),
        ("9223372036854775808", Constant(9223372036854775808.0)),
    ],
)
def test_parses_to_the_tree(text, tree):
    assert parse(text).root == tree


def test_names_the_columns_it_reads():
    assert columns(parse("a > 1 and (`b c` in ['d'] or -e / a is null)")) == {"a", "b c", "e"}


def test_a_column_whose_name_holds_signs_is_a_reference_when_it_exists():
    assert parse_reference("my-label", {"my-label": 1}).root == Column("my-label")
    assert parse_reference("my-label", {"my": 1, "label": 1}).root == Arithmetic(
        "-", Column("my"), Column("label")
    )


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "the expression is empty", 0),
        ("rating >=", "expected a column, a number or a quoted string, but the expression ends", 9),
        ("rating >= 4 and", "but the expression ends", 15),
        ("rating = 4", "write `==` to compare", 7),
        ("rating == null", "write `is null`", 7),
        ("rating != null", "write `is not null`", 7),
        ("1 < rating < 3", "comparisons are not chained", 11),
        ("a && b", "write `and`", 2),
        ("a <> b", "but got '>'", 3),
        ("log(a)", "'log' is called like a function", 0),
        ("__import__('os')", "called like a function", 0),
        ("a in (1, 2)", "expected a list such as [1, 2] after `in`", 5),
        ("a in [1, null]", "expected a number, a quoted string, true or false, but got 'null'", 9),
        ("a in [-'x']", "expected a number", 7),
        ("a in []", "expected a number", 6),
        ("a b", "expected an operator", 2),
        ("(a", "expected `)`", 2),
        ("'a", "the ' that opens here is not closed", 0),
        ("a == `b", "the ` that opens here is not closed", 5),
        ("7days > 1", "this is not a number", 0),
        ("1.2.3", "this is not a number", 0),
        ("a.b", "unexpected character '.'", 1),
        ("a > 1e999", "too large", 4),
        (r"a == '\d'", r"unknown escape '\d'", 6),
        ("a is 3", "expected `null` after `is`", 5),
        ("(" * 5000, "nested deeper", 50),
        ("not " * 5000, "nested deeper", 196),
        ("-" * 5000, "nested deeper", 49),
        ("+".join("a" * 5000), "nested deeper", 99),
    ],
)
def test_errors_name_the_place(text, reason, position):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert caught.value.position == position


def test_the_message_points_with_a_caret():
    with pytest.raises(ConfigError) as caught:
        parse("rating > 3 and\n  genre = 'War'")
    assert str(caught.value).splitlines()[1:] == ["      genre = 'War'", "            ^"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.position) == (str(caught.value), caught.value.position)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("rating", "number"),
        ("rating * count + clicked", "number"),
        ("rating > count and clicked", "condition"),
        ("clicked == 1", "condition"),
        ("genre in ['a', 'b']", "condition"),
        ("time >= '2024-01-31' and time < '2024-02-01T10:00:00+02:00'", "condition"),
        ("tags is not null", "condition"),
        ("genre", "string"),
        ("time", "timestamp"),
    ],
)
def test_types(text, kind):
    assert check_types(parse(text), KINDS) == kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ratign >= 4", "no such column: 'ratign'. Did you mean 'rating'?"),
        ("genre >= 4", "the column `genre` is a string, 4 is a number; write '4' in quotes"),
        ("rating in [1, 'x']", "the column `rating` is a number, 'x' is a string"),
        ("genre + 1", "arithmetic needs a number, but the column `genre` is a string"),
        ("-genre", "arithmetic needs a number"),
        ("tags == 'a'", "only single values can be compared, but the column `tags` is a list or map"),
        ("weights in ['a']", "only single values can be looked up"),
        (
            "not rating",
            "a condition is needed here, but the column `rating` is a number; write `rating != 0`",
        ),
        ("clicked and genre", "a condition is needed here, but the column `genre` is a string"),
        ("time > 5", "the column `time` is a timestamp, 5 is a number"),
        ("time > 'yesterday'", "'yesterday' is not a date or time"),
        ("time > genre", "these cannot be compared"),
    ],
)
def test_type_errors_name_both_sides(text, reason):
    with pytest.raises(ExpressionError) as caught:
        check_types(parse(text), KINDS)
    assert reason in caught.value.reason


def test_a_filter_must_be_a_condition():
    require_condition(parse("rating > 3"), KINDS)
    with pytest.raises(ExpressionError, match=r"a condition is needed here.*`rating != 0`"):
        require_condition(parse("rating"), KINDS)
