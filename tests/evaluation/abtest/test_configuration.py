"""What a file of experiments may say, and how a wrong one is refused."""

import pytest

from evaluation.abtest.allocation import allocate, write_allocation
from evaluation.abtest.conditions import compile_condition, condition_problems
from evaluation.abtest.errors import ExperimentConfigError
from evaluation.abtest.loading import Surroundings, load_experiments, parse_experiments

GOOD = """\
version: 1
holdout: {percent: 5}
layers:
  ranking: {owns: [model, temperature]}
  recall: {owns: [sources]}
experiments:
  din:
    layer: ranking
    status: running
    percent: 20
    start: 2026-05-01
    variants:
      control: {}
      din: {overrides: {model: din}}
    metrics: {goals: [ctr], guardrails: {latency_p95: 0.05}}
"""


def problems(text, surroundings=Surroundings()):  # noqa: B008 it is frozen
    with pytest.raises(ExperimentConfigError) as caught:
        parse_experiments(text, surroundings, "ab.yaml")
    return [str(one) for one in caught.value.problems]


def test_a_good_file_loads_and_its_hash_ignores_formatting():
    config = parse_experiments(GOOD)
    assert config.experiments["din"].control == "control"
    assert config.hash == parse_experiments(f"# comment\n{GOOD}").hash
    assert config.hash != parse_experiments(GOOD.replace("20", "21")).hash


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("percent: 20", "percnt: 20"), 10, ["experiments.din.percnt", "did you mean 'percent'"]),
        (("layer: ranking", "layer: rankin"), 8, ["no layer 'rankin'", "did you mean 'ranking'"]),
        (("{model: din}", "{modle: din}"), 14, ["does not own", "did you mean 'model'"]),
        (("{model: din}", "{sources: din}"), 14, ["layer 'ranking' does not own"]),
        (("owns: [sources]", "owns: [sources, model]"), 5, ["'model' belongs to layer 'ranking' already"]),
        (("control: {}", "base: {}"), 12, ["exactly one control"]),
        (("control: {}", "control: {weight: 0}\n      c: {weight: -1}"), 14, ["greater than or equal to 0"]),
        (("    metrics", "    end: 2026-04-01\n    metrics"), 15, ["before it starts"]),
        (("[ctr]", "[ctrr]"), 15, ["no metric 'ctrr'", "did you mean 'ctr'"]),
        (("percent: 20", "percent: 120"), 10, ["less than or equal to 100", "120"]),
        (("percent: 20", "segments: [[0, 30], [20, 40]]"), 10, ["bucket 20", "itself"]),
        (("percent: 20", "segments: [[5, 5]]"), 10, ["empty"]),
        (("status: running", "status: runing"), 9, ["running", "'runing'"]),
        (
            ("percent: 20", "when: {country: {inn: DE}}\n    percent: 20"),
            10,
            ["unknown operator 'inn'", "'in'"],
        ),
        (("percent: 20", "allowlist: {u1: dinn}\n    percent: 20"), 10, ["no variant 'dinn'", "'din'"]),
        (("percent: 20", "salt: layer/recall\n    phase: 1\n    percent: 20"), None, []),
        (("recall: {owns", "recall: {salt: layer/ranking, owns"), 5, ["uses the salt", "again"]),
        (("percent: 20", "phase: 0\n    percent: 20"), 10, ["greater than or equal to 1"]),
        (("{percent: 5}", "{percent: 5, salt: layer/ranking}"), None, ["uses the salt"]),
        (("percent: 20", "namespace: [a, 0, 1]\n    percent: 20"), 10, ["growthbook-v2"]),
        (("percent: 20", "algorithm: growthbook-v1\n    percent: 20"), 10, ["growthbook-v2"]),
        (("start: 2026-05-01", "start: soon"), 11, ["a time is written like"]),
        (("version: 1", "version: 2"), 1, ["must be 1"]),
        (("    percent: 20\n", ""), 7, ["runs on no traffic"]),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_advice(change, line, words):
    text = GOOD.replace(*change)
    assert text != GOOD
    if not words:
        parse_experiments(text)
        return
    found = problems(text)
    match = [one for one in found if all(word in one for word in words)]
    assert match, found
    assert line is None or match[0].startswith(f"ab.yaml:{line}: "), match[0]


def test_all_problems_are_reported_at_once_in_order():
    found = problems(
        GOOD.replace("[ctr]", "[nope]")
        .replace("{model: din}", "{x: 1}")
        .replace("layer: ranking", "layer: a")
    )
    assert len(found) == 2  # what variants may set is unknown without a layer
    assert [int(one.split(":")[1]) for one in found] == [8, 15]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version: 1"),
        ("- a", "version: 1"),
        ("version: 1\nlayers: [a", "is not YAML"),
        ("version: 1\nversion: 1", "stands twice, first in line 1"),
        ("version: 1\nmetrics: {m: {type: mena, value: {event: a}}}", "mean"),
        (
            "version: 1\nmetrics: {m: {type: mean, value: {event: a, exposure: b}}}",
            "either `event` or `exposure`",
        ),
        ("version: 1\nlayers: {a: {owns: [x], unit: time_slot}}\nunit: time_slot", "holdout and domains"),
        ("version: 1\nlayers: {a: {owns: [x], slot_minutes: 5}}", "needs `unit: time_slot`"),
        (
            "version: 1\nlayers: {a: {owns: [x]}}\ndomains: {d: {percent: 60, layers: [b]}}",
            "no layer 'b'",
        ),
        ('version: 1\nlayers: {"a\\x1fb": {owns: [x]}}', "printable"),
    ],
)
def test_files_of_the_wrong_shape(text, words):
    assert any(words in one for one in problems(text))


def test_a_missing_file_and_a_file_of_bytes(tmp_path):
    with pytest.raises(ExperimentConfigError, match="cannot be read"):
        load_experiments(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExperimentConfigError, match="UTF-8"):
        load_experiments(tmp_path / "bytes.yaml")


def test_parameters_and_models_must_exist():
    known = Surroundings(parameters=["model"], models={"model": ["deepfm"]})
    found = problems(GOOD, known)
    assert any("overrides.model: the model 'din' is not loaded" in one for one in found)
    found = problems(GOOD.replace("{model: din}", "{temperature: 2}"), known)
    assert any("no parameter of a scene" in one for one in found)


def test_segments_of_two_experiments_do_not_overlap():
    second = """\
  other:
    layer: ranking
    status: running
    segments: [[1500, 3000]]
    variants: {control: {}, b: {}}
"""
    found = problems(GOOD.replace("percent: 20", "segments: [[0, 2000]]") + second)
    assert any("bucket 1500 of layer 'ranking' belongs to 'din' already" in one for one in found)
    found = problems(GOOD + second.replace("1500", "2000"))
    assert any("easyrec ab allocate" in one for one in found)
    stopped = GOOD.replace("percent: 20", "segments: [[0, 2000]]").replace("running", "stopped")
    assert any("until `released: true`" in one for one in problems(stopped + second))
    parse_experiments(stopped.replace("status: stopped", "status: stopped\n    released: true") + second)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("control: {}", "control: {weight: 3}"), "weights or order of variants changed"),
        (("percent: 20", "percent: 20\n    salt: other"), "salt changed"),
        (("percent: 20", "percent: 10"), "takes 1000 buckets away"),
        (("owns: [model, temperature]", "salt: other, owns: [model, temperature]"), "draws new users"),
    ],
)
def test_a_change_that_moves_users_needs_a_new_phase(change, words):
    live = parse_experiments(GOOD)
    changed = GOOD.replace(*change)
    assert any(words in one for one in problems(changed, Surroundings(previous=live)))
    if "buckets" not in words and "new users" not in words:
        parse_experiments(
            changed.replace("percent: 20", "percent: 20\n    phase: 2"), Surroundings(previous=live)
        )


def test_growing_pausing_and_stopping_need_no_new_phase():
    live = Surroundings(previous=parse_experiments(GOOD))
    for change in (("percent: 20", "percent: 50"), ("running", "paused"), ("running", "stopped")):
        parse_experiments(GOOD.replace(*change), live)


def test_allocation_appends_and_keeps_comments(tmp_path):
    file = tmp_path / "ab.yaml"
    text = """\
version: 1
layers: {ranking: {owns: [model]}}
experiments:
  first:   # the first one
    layer: ranking
    status: running
    segments: [[0, 1000]]
    percent: 30   # was 10
    variants: {control: {}, a: {}}
  second:
    {layer: ranking, status: running, percent: 25, variants: {control: {}, b: {}}}
  third:
    layer: ranking
    status: running
    segments: [[1500, 2000]]
    variants: {control: {}, c: {}}
"""
    file.write_text(text, encoding="utf-8")
    new, changes = allocate(file)
    assert [one.after for one in changes] == [[(0, 1000), (1000, 1500), (2000, 3500)], [(3500, 6000)]]
    assert "# the first one" in new
    assert "# was 10" in new
    write_allocation(file, new)
    config = load_experiments(file)
    assert config.segments_of("second") == [(3500, 6000)]
    assert allocate(file) == (new, [])


@pytest.mark.parametrize(
    ("percent", "words"), [(5, "traffic only grows"), (101, "less than or equal to 100")]
)
def test_allocation_refuses(tmp_path, percent, words):
    file = tmp_path / "ab.yaml"
    file.write_text(
        GOOD.replace("percent: 20", f"segments: [[0, 2000]]\n    percent: {percent}"), encoding="utf-8"
    )
    with pytest.raises(ExperimentConfigError, match=words):
        allocate(file)


@pytest.mark.parametrize(
    ("condition", "true", "false"),
    [
        ({"c": "DE"}, [{"c": "DE"}], [{}, {"c": "AT"}, {"c": None}, {"c": 3}]),
        ({"c": ["DE", 3]}, [{"c": "DE"}, {"c": 3}, {"c": ["x", "DE"]}], [{"c": "AT"}, {"c": "3"}, {"c": {}}]),
        ({"n": {"gte": 3, "lt": 5}}, [{"n": 3}, {"n": 4.5}], [{"n": 5}, {"n": "4"}, {"n": True}, {}]),
        ({"f": True}, [{"f": True}], [{"f": 1}, {"f": "true"}, {}]),
        (
            {"v": {"version_gte": "3.10"}},
            [{"v": "3.10.0"}, {"v": "v4.0-beta"}],
            [{"v": "3.9.9"}, {"v": "x"}, {"v": 4}],
        ),
        ({"c": {"nin": ["a"]}}, [{"c": "b"}], [{"c": "a"}, {}]),
        ({"c": {"ne": "a"}}, [{"c": "b"}], [{"c": "a"}, {}]),
        ({"c": {"exists": False}}, [{}], [{"c": 0}]),
        ({"c": {"like": "a*?c*"}}, [{"c": "abc"}, {"c": "axxcz"}], [{"c": "ac"}, {"c": "b"}, {"c": 5}]),
        ({"not": {"c": "a"}}, [{}, {"c": "b"}], [{"c": "a"}]),
        ({"any": [{"a": 1}, {"b": 1}]}, [{"a": 1}, {"b": 1, "a": 2}], [{}]),
        ({"all": [{"a": 1}, {"b": 1}]}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ],
)
def test_conditions(condition, true, false):
    assert not condition_problems(condition, "when")
    predicate = compile_condition(condition)
    assert [predicate(one) for one in true] == [True] * len(true)
    assert [predicate(one) for one in false] == [False] * len(false)


@pytest.mark.parametrize(
    "condition",
    [
        {},
        3,
        {"a": {}},
        {"a": []},
        {"a": {"in": 3}},
        {"a": {"gt": [1]}},
        {"a": {"version_gt": "x"}},
        {"any": {}},
        {"not": 3},
        {"a": {"like": 1}},
        {"a": {"exists": 1}},
        {"a": None},
    ],
)
def test_wrong_conditions(condition):
    assert condition_problems(condition, "when")
