import math

import pytest

from easyrec.config.locations import Location
from easyrec.config.yaml_reader import plain_value, read_yaml
from easyrec.errors import ConfigError


def refused(text):
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("On", "On"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("+12", 12),
        ("007", "007"),
        ("1_000", "1_000"),
        ("0x1F", 31),
        ("0o17", 15),
        ("2024-01-31", "2024-01-31"),
        ("12:30:00", "12:30:00"),
        (".inf", math.inf),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("9" * 100_000, "9" * 100_000),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text, value):
    found = plain_value(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number():
    assert math.isnan(plain_value(".nan"))


def test_quoted_scalars_are_text():
    assert read_yaml("['1', \"true\", '', |-\n 5\n]".replace("|-\n 5\n", "'5'"), "f").value == [
        "1",
        "true",
        "",
        "5",
    ]
    assert read_yaml("a: |-\n  5", "f").value == {"a": "5"}


def test_standard_tags_choose_a_type():
    assert read_yaml('[!!str 5, !!int "5", !!float "1e3", !!bool "true", !!null ""]', "f").value == [
        "5",
        5,
        1e3,
        True,
        None,
    ]


def test_keys_are_text_as_written():
    document = read_yaml("{no: 1, 5: 2, 1e3: 3, null: 4, true: 5, 2024-01-31: 6, '': 7}", "f")
    assert list(document.value) == ["no", "5", "1e3", "null", "true", "2024-01-31", ""]


def test_every_value_and_key_has_a_place():
    document = read_yaml("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n", "f")
    lines = {path: place.line for path, place in document.places.items()}
    assert lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }
    assert document.places["a",] == Location("f", 1)


def test_anchors_and_merge_keys():
    document = read_yaml(
        "base: &base {x: 1, y: {z: 2}}\nother: &other {x: 5, w: 6}\n"
        "a: {<<: *base, x: 9}\nb: {<<: [*base, *other]}\nc: *base\n",
        "f",
    )
    assert document.value["a"] == {"x": 9, "y": {"z": 2}}
    assert document.value["b"] == {"x": 1, "y": {"z": 2}, "w": 6}
    assert document.value["c"] == {"x": 1, "y": {"z": 2}}
    assert document.places["a", "y", "z"].line == 1
    assert document.places["a", "x"].line == 3
    assert not document.problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: 1\nb:\n  c: 1\n  c: 2\n",
            "f.yaml:4  b.c  the key 'c' is given twice (first in line 3); keep one",
        ),
        ("a: {[1]: 2}", "f.yaml:1  a  a key is plain text, not a list or mapping"),
        (
            "a: !secret x",
            "f.yaml:1  a  tags such as '!secret' are not part of the configuration language; drop it",
        ),
        (
            "a: !!python/object/apply:os.system ['x']",
            "f.yaml:1  a  tags such as 'tag:yaml.org,2002:python/object/apply:os.system' are not part of the "
            "configuration language; drop it",
        ),
        ("a: {<<: 5}", "f.yaml:1  a  `<<` merges a mapping, or a list of mappings"),
    ],
)
def test_problems_with_single_values_are_collected(text, problem):
    assert [str(found) for found in read_yaml(text, "f.yaml").problems] == [problem]


def test_both_of_two_problems_are_found():
    assert len(read_yaml("a: 1\na: 2\nb: 1\nb: 2", "f").problems) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: [1, 2\nc: 3\n",
            "f.yaml:3  column 2: expected ',' or ']', but got ':' (while parsing a flow sequence)\n    c: 3\n     ^",
        ),
        (
            "a:\n\t- b\n",
            "f.yaml:2  column 1: a tab cannot indent or separate here; use spaces\n     - b\n    ^",
        ),
        (
            "a: b: c\n",
            "f.yaml:1  column 5: a second `: ` in one line; put text that holds a colon in quotes, or check the "
            "indentation above\n    a: b: c\n        ^",
        ),
        ("a: 1\n---\nb: 2\n", "a second document starts here; one file holds one configuration"),
        ("a: *b\n", "column 4: text that starts with * must be in quotes (found undefined alias 'b')"),
        ("a: *.csv\n", "text that starts with * must be in quotes (expected alphabetic"),
        ("a: {b: |}\n", "column 8: text that starts with | must be in quotes"),
        ("a: @b\n", "column 4: text that starts with @ must be in quotes"),
        ("a: \x07\n", "f.yaml:1  the character U+0007 is not allowed in YAML"),
        ("a: 'x", "found unexpected end of stream"),
        ("[" * 1500, "nested deeper than 100 levels"),
        ("a: &x [*x]", "nested deeper than 100 levels; does an alias refer to itself?"),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_place(text, message):
    assert message in refused(text)


def test_a_document_that_explodes_is_refused():
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "more than 50,000 values" in refused("\n".join(lines))


def test_an_empty_document_is_null():
    assert read_yaml("# nothing\n", "f").value is None


def test_text_in_no_file_has_no_lines():
    document = read_yaml("{a: 1}", "--set", numbered=False)
    assert document.places["a",] == Location("--set", None)
