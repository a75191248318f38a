import pytest
from hypothesis import given
from hypothesis import strategies as st

from easyrec.config.paths import format_path, parse_path
from easyrec.config.patterns import alternatives, covers, is_pattern, matching


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("training.epochs", ("training", "epochs")),
        ('features."I*".buckets', ("features", "I*", "buckets")),
        ("features.'a.b'", ("features", "a.b")),
        ("data.train.path[0]", ("data", "train", "path", 0)),
        ("data.train.path.0", ("data", "train", "path", "0")),
        ("features.I*", ("features", "I*")),
        ('"a\\"b"', ('a"b',)),
    ],
)
def test_paths_are_read(text, path):
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "a b", '"a', "a[x]", "a=b", '"a"b'])
def test_what_is_not_a_path_is_refused(text):
    with pytest.raises(ValueError, match="expected a"):
        parse_path(text)


@given(st.lists(st.text(min_size=1) | st.text("ab.* \"'\\[]=", min_size=1), min_size=1, max_size=4))
def test_a_written_path_is_read_back(parts):
    assert parse_path(format_path(tuple(parts))) == tuple(parts)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("I*", ["I", "I1", "I[0]"]),
        ("I?", ["I1"]),
        ("*", ["I", "I1", "i1", "I[0]", "a.b"]),
        ("I[0]", ["I[0]"]),
        ("a.b", ["a.b"]),
        ("i*", ["i1"]),
        ("x", []),
    ],
)
def test_matching_is_case_sensitive_and_over_the_whole_name(pattern, names):
    assert matching(pattern, ["I", "I1", "i1", "I[0]", "a.b"]) == names


def test_braces_are_written_out_in_order():
    assert alternatives("{a,b*}_{1,2}") == ["a_1", "a_2", "b*_1", "b*_2"]
    assert alternatives("{a, a}") == ["a"]
    assert is_pattern("{a,b}")
    assert covers("{a,b*}", "bc")
    assert not covers("{a,b*}", "c")


@pytest.mark.parametrize("pattern", ["{a", "a}", "{a,{b}}", "{0,1,2,3,4,5,6,7,8,9}" * 5])
def test_bad_braces_are_refused(pattern):
    with pytest.raises(ValueError, match=r"not closed|more than"):
        alternatives(pattern)
    assert not covers(pattern, "a")
