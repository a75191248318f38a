"""Who gets what: golden vectors, an independent computation, and properties of splits and ramps."""

import hashlib
import json
import subprocess
import sys
import unicodedata
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from evaluation.abtest.assignment import ASSIGNED, CONDITION, FORCED, FREE, HOLDOUT, NO_UNIT, OUTSIDE_DATES
from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.hashing import BUCKETS, bucket_of, drawer, unit_text
from evaluation.abtest.loading import parse_experiments

GOLDEN = json.loads((Path(__file__).parent / "golden_buckets.json").read_text(encoding="utf-8"))


def experiment(layer="ranking", **changes):
    variants = {"control": {}, "din": {"overrides": {"model": "din"}}}
    return {"layer": layer, "status": "running", "percent": 100, "variants": variants, **changes}


def assigner(experiments=None, **changes):
    return compile_assigner(
        parse_experiments(
            {
                "version": 1,
                "layers": {"ranking": {"owns": ["model"]}},
                "experiments": experiments or {"din": experiment()},
                **changes,
            }
        )
    )


def variant_of(one, user, **more):
    return one.assign({"user_id": user}, **more).assignments[0].variant


@pytest.mark.parametrize(("salt", "unit", "bucket"), GOLDEN)
def test_buckets_never_change(salt, unit, bucket):
    assert bucket_of(salt, unit) == bucket


def test_buckets_are_the_documented_formula():
    for salt, unit, bucket in GOLDEN:
        text = unicodedata.normalize("NFC", unit.strip())
        digest = hashlib.sha256(b"rx1\x1f" + salt.encode() + b"\x1f" + text.encode()).digest()
        assert int.from_bytes(digest[:8], "big") * 10_000 // 2**64 == bucket


def test_numbers_and_texts_are_one_user_and_so_are_composed_and_decomposed_letters():
    assert unit_text(42) == unit_text("42") == unit_text(42.0) == unit_text(np.int64(42)) == "42"
    assert bucket_of("s", "nai\u0308ve") == bucket_of("s", "na\u00efve")
    assert unit_text(None) == unit_text(True) == unit_text("  ") == ""
    assert bucket_of("s", "\ud800") in range(BUCKETS)  # half a surrogate pair, from broken input


def test_assignment_is_the_same_in_another_process():
    code = (
        "from evaluation.abtest.compilation import compile_assigner as c\n"
        "from evaluation.abtest.loading import parse_experiments as p\n"
        "a = c(p('{version: 1, layers: {ranking: {owns: [model]}}, experiments: {din: {layer: ranking, status: "
        "running, percent: 100, variants: {control: {}, din: {overrides: {model: din}}}}}}'))\n"
        "print(''.join(a.assign({'user_id': u}).assignments[0].variant[0] for u in range(300)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = assigner()
    assert done.stdout.strip() == "".join(variant_of(here, user)[0] for user in range(300))


def test_assignment_needs_nothing_but_the_standard_library():
    code = (
        "import sys, evaluation.abtest.assignment\n"
        "print([m for m in ('pydantic', 'yaml', 'numpy', 'scipy', 'pandas', 'ibis') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_consecutive_ids_spread_evenly_and_splits_are_independent():
    # 100,000 consecutive ids and 20 salts: uniform over 100 bins, and no two 50/50 splits go together.
    ids = [str(number) for number in range(100_000)]
    draws = np.array([np.fromiter(map(drawer(f"salt {k}"), ids), np.uint64, len(ids)) for k in range(20)])
    buckets = (draws >> np.uint64(32)) * np.uint64(100) >> np.uint64(32)
    for row in buckets:
        counts = np.bincount(row.astype(int), minlength=100)
        statistic = ((counts - 1000) ** 2 / 1000).sum()
        assert chi2.sf(statistic, 99) > 1e-4
    halves = (draws >> np.uint64(63)).astype(float)
    correlations = [abs(np.corrcoef(halves[i], halves[j])[0, 1]) for i, j in combinations(range(20), 2)]
    assert max(correlations) < 0.0155  # 4.9 standard errors: below p 1e-6


def test_gate_and_split_are_drawn_apart():
    # One draw for both would put all of a 10% gate into the first arm.
    one = assigner({"din": experiment(percent=10)})
    arms = [variant_of(one, user) for user in range(20_000)]
    inside = [arm for arm in arms if arm]
    assert len(inside) == pytest.approx(2000, abs=200)
    assert inside.count("din") == pytest.approx(len(inside) / 2, abs=150)


def test_weights_are_kept():
    variants = {"control": {"weight": 8}, "a": {"weight": 1}, "b": {"weight": 1}, "off": {"weight": 0}}
    one = assigner({"din": experiment(variants=variants)})
    arms = [variant_of(one, user) for user in range(20_000)]
    assert arms.count("a") == pytest.approx(2000, abs=200)
    assert arms.count("control") == pytest.approx(16_000, abs=300)
    assert arms.count("off") == 0


@settings(max_examples=25, deadline=None)
@given(
    percents=st.lists(st.integers(0, 10_000), min_size=2, max_size=5).map(sorted),
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    salt=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF, categories=("L", "N")), min_size=1),
)
def test_ramping_up_moves_nobody(percents, weights, salt):
    variants = {f"v{k}": {"weight": weight, "control": k == 0} for k, weight in enumerate(weights)}
    before = {}
    for percent in percents:
        one = assigner({"din": experiment(percent=percent / 100, variants=variants, salt=salt)})
        now = {user: variant_of(one, user) for user in range(200)}
        assert all(now[user] == arm for user, arm in before.items() if arm)
        before = now


def test_one_layer_never_gives_a_user_two_experiments_and_two_layers_are_independent():
    one = compile_assigner(
        parse_experiments(
            {
                "version": 1,
                "layers": {"ranking": {"owns": ["model"]}, "recall": {"owns": ["sources"]}},
                "experiments": {
                    "a": experiment(segments=[[0, 3000]], percent=None),
                    "b": experiment(segments=[[3000, 9000]], percent=None),
                    "c": experiment("recall", variants={"control": {}, "x": {"overrides": {"sources": 1}}}),
                },
            }
        )
    )
    seen = [one.assign({"user_id": user}).assignments for user in range(10_000)]
    assert sum(ranking.experiment == "a" for ranking, _ in seen) == pytest.approx(3000, abs=200)
    assert sum(ranking.reason == FREE for ranking, _ in seen) == pytest.approx(1000, abs=130)
    both = [(r.variant == "din", c.variant == "x") for r, c in seen if r.experiment == "b"]
    assert abs(np.corrcoef(np.array(both, dtype=float).T)[0, 1]) < 0.05


def test_reasons():
    def reason(one, units, attributes=None, now=0.0):
        return one.assign(units, attributes or {}, now).assignments[0].reason

    timed = assigner(
        {"din": experiment(start="1970-01-02", end="1970-01-03", when={"country": ["NO", "SE"]})}
    )
    day = 86_400
    assert reason(timed, {"user_id": 1}) == OUTSIDE_DATES
    assert reason(timed, {"user_id": 1}, now=1.5 * day) == CONDITION
    assert reason(timed, {"user_id": 1}, {"country": "NO"}, 1.5 * day) == ASSIGNED
    assert reason(timed, {"user_id": 1}, {"country": "NO"}, 2 * day) == OUTSIDE_DATES
    for units in ({}, {"user_id": ""}, {"user_id": None}, {"session_id": "s"}):
        assert reason(timed, units) == NO_UNIT


def test_the_holdout_gets_no_change_at_all_and_the_allow_list_beats_it():
    one = assigner(
        {"din": experiment(allowlist={str(user): "din" for user in range(50)})},
        holdout={"percent": 40},
        layers={"ranking": {"owns": ["model"], "defaults": {"model": "launched"}}},
    )
    decisions = [one.assign({"user_id": user}) for user in range(2000)]
    held = [decision for decision in decisions[50:] if decision.holdout]
    assert len(held) == pytest.approx(0.4 * 1950, abs=100)
    assert all(not d.parameters and d.assignments[0].reason == HOLDOUT for d in held)
    assert {d.parameters["model"] for d in decisions[50:] if not d.holdout} == {"launched", "din"}
    forced = [decision.assignments[0] for decision in decisions[:50]]
    assert all(one.variant == "din" and one.forced and one.reason == FORCED for one in forced)


def test_domains_split_the_traffic_and_a_domain_has_its_own_layers():
    one = compile_assigner(
        parse_experiments(
            {
                "version": 1,
                "domains": {
                    "whole": {"percent": 10, "layers": ["pipeline"]},
                    "parts": {"percent": 85, "layers": ["ranking"]},
                },
                "layers": {"pipeline": {"owns": ["pipeline"]}, "ranking": {"owns": ["model"]}},
                "experiments": {"din": experiment()},
            }
        )
    )
    names = [[a.layer for a in one.assign({"user_id": user}).assignments] for user in range(4000)]
    assert names.count(["pipeline"]) == pytest.approx(400, abs=80)
    assert names.count([]) == pytest.approx(200, abs=60)
    assert one.assign({}).assignments == ()


def test_units_of_a_layer():
    session = assigner(layers={"ranking": {"owns": ["model"], "unit": "session_id"}})
    arms = {session.assign({"user_id": 1, "session_id": k}).assignments[0].variant for k in range(50)}
    assert arms == {"control", "din"}
    slots = assigner(layers={"ranking": {"owns": ["model"], "unit": "time_slot", "slot_minutes": 30}})
    first = [slots.assign({"user_id": k}, now=1000 + k).assignments[0] for k in range(100)]
    assert len({(one.variant, one.unit) for one in first}) == 1
    later = {slots.assign({}, now=1800.0 * k).assignments[0].variant for k in range(60)}
    assert later == {"control", "din"}


def test_a_new_phase_draws_anew():
    first, second = assigner(), assigner({"din": experiment(phase=2)})
    moved = sum(variant_of(first, user) != variant_of(second, user) for user in range(2000))
    assert moved == pytest.approx(1000, abs=150)


def test_drafts_paused_and_stopped_experiments_assign_nobody():
    for status in ("draft", "paused", "stopped"):
        one = assigner({"din": experiment(status=status)})
        assert {one.assign({"user_id": user}).assignments[0].reason for user in range(50)} == {FREE}


def test_strange_ids_and_attributes_never_fail():
    one = assigner(
        {"din": experiment(when={"n": {"gt": 3}, "v": {"version_gte": "3.2"}, "c": {"like": "d*"}})}
    )
    for value in (None, "", "x", 3, 3.5, float("nan"), True, [1], {"a": 1}, b"x", object()):
        decision = one.assign({"user_id": value}, {"n": value, "v": value, "c": value})
        assert decision.assignments[0].variant is None or decision.assignments[0].reason == ASSIGNED
