"""Coverage of a catalogue: the number of sets, the error of leaving out each unit, and no test."""

from itertools import combinations

import numpy as np
import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.abtest.errors import ExperimentConfigError, ExperimentDataError
from evaluation.abtest.loading import parse_experiments
from evaluation.abtest.report.write import to_html, to_text
from evaluation.abtest.statistics.coverage import Shown, compare_coverage

DAY = 86_400.0


def shown(units):
    """An arm from the set of items of each of its units."""
    items = sorted(set().union(*units))
    pairs = [(u, items.index(item)) for u, mine in enumerate(units) for item in mine]
    who, what = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Shown(len(units), np.bincount(what, minlength=len(items)), who, what)


def mean_union(units, size):
    """Number of items of every choice of units, averaged."""
    return float(np.mean([len(set().union(*some)) for some in combinations(units, size)]))


@pytest.mark.parametrize("size", [1, 2, 4, 6, 7])
def test_items_and_their_error_are_those_of_all_choices(size):
    random = np.random.default_rng(size)
    units = [set(random.zipf(1.6, random.integers(0, 6)) % 40) for _ in range(7)]
    arm = shown(units)
    assert arm.items_at(size) == pytest.approx(mean_union(units, size), rel=1e-12)
    without = np.array([mean_union(units[:u] + units[u + 1 :], min(size, 6)) for u in range(7)])
    assert arm.items_se(size) == pytest.approx(
        np.sqrt(6 / 7 * ((without - without.mean()) ** 2).sum()), rel=1e-9
    )


def test_arms_of_unequal_size_are_compared_at_the_same_size_and_intervals_keep_their_word():
    random = np.random.default_rng(5)
    chance = 0.15 / np.arange(1, 151) * 2
    held = []
    for _ in range(150):
        busy = [random.choice([0.2, 1.8], (units, 1)) for units in (200, 350)]
        seen = [random.random((len(one), 150)) < np.minimum(chance * one, 1) for one in busy]
        arms = [shown([set(np.flatnonzero(unit)) for unit in arm]) for arm in seen]
        absolute, log_ratio = compare_coverage(*arms, 150)
        assert len(arms[1].counts) / 150 >= float(absolute.estimate) + len(arms[0].counts) / 150
        low, high = absolute.interval()
        held.append(low <= 0 <= high)
        assert float(log_ratio.se) > 0
    assert 0.93 <= np.mean(held) <= 1


def config(one, secondary, **metrics):
    values = one.config.model_dump(mode="json", exclude_none=True)
    values["metrics"] = metrics
    values["experiments"]["din"]["metrics"] = {"goals": ["ctr"], "secondary": secondary}
    return parse_experiments(values)


def analyzed(one, configuration):
    with duckdb_connection("500MB", threads=2) as connection:
        tables = [
            opened(connection, one.folder / name)
            for opened, name in ((open_exposures, "exposures"), (open_events, "events"))
        ]
        return analyze(configuration, "din", Logs(*tables))


@pytest.fixture(scope="module")
def logs(simulated):
    """Logs of 600 users in which the variant draws from more items; some were shown nothing."""
    one = simulated(users=600, days=6, seed=11)
    random = np.random.default_rng(2)
    mine = one.exposures[one.exposures.experiment == "din"]
    treated = one.events.user_id.isin(mine[mine.variant == "din"].unit_id)
    drawn = random.zipf(1.5, len(one.events)) % np.where(treated, 900, 200)
    one.events["item_id"] = drawn.astype(str)
    one.events.loc[random.random(len(one.events)) < 0.02, "item_id"] = None
    blind = mine.unit_id.drop_duplicates().sample(40, random_state=1)
    one.events = one.events[~((one.events.type == "impression") & one.events.user_id.isin(blind))]
    return one.write()


def sets_of(one, days=None, kind="impression"):
    """Items of each unit by variant, row by row."""
    mine = one.exposures[one.exposures.experiment == "din"].sort_values("timestamp")
    first, variant, last = {}, {}, mine.timestamp.max()
    for unit, at, arm in zip(mine.unit_id, mine.timestamp, mine.variant, strict=True):
        first.setdefault(unit, at)
        variant.setdefault(unit, arm)
    until = max(last, one.events.timestamp.max()) + 1e-3
    found = {"control": {}, "din": {}}
    for unit, arm in variant.items():
        if days is None or first[unit] + days * DAY <= until:
            found[arm][unit] = set()
    rows = one.events[one.events.type == kind]
    for unit, at, item in zip(rows.user_id, rows.timestamp, rows.item_id, strict=True):
        if unit in variant and unit in found[variant[unit]] and isinstance(item, str):
            end = first[unit] + days * DAY if days else min(last + 3600, until)
            if first[unit] <= at < end:
                found[variant[unit]][unit].add(item)
    return found


def test_coverage_of_logs_is_that_of_sets(logs):
    seen = {"type": "coverage", "value": {"event": "impression", "distinct": "item_id"}}
    metrics = {
        "in_catalogue": {**seen, "catalogue": 2000},
        "first_day": {**seen, "window_days": 1},
        "clicked": {**seen, "value": {"event": "click", "distinct": "item_id"}},
    }
    names = ["coverage", *metrics]
    result = analyzed(logs, config(logs, names, **metrics))
    for name, days, kind, catalogue in (
        ("coverage", None, "impression", None),
        ("in_catalogue", None, "impression", 2000),
        ("first_day", 1, "impression", None),
        ("clicked", None, "click", None),
    ):
        got, arms = result.metric(name), sets_of(logs, days, kind)
        control, din = (list(arms[arm].values()) for arm in ("control", "din"))
        total = catalogue or len(set().union(*control, *din))
        assert (got.units_control, got.units) == (len(control), len(din))
        assert got.control == len(set().union(*control)) / total
        assert got.value == len(set().union(*din)) / total
        # From all pairs, those of common items included.
        absolute, log_ratio = compare_coverage(shown(control), shown(din), total)
        low, high = absolute.interval(0.05)
        expected = [float(one) for one in (absolute.estimate, low, high)]
        assert [got.absolute.estimate, got.absolute.low, got.absolute.high] == pytest.approx(
            expected, rel=1e-9
        )
        assert got.relative.estimate == pytest.approx(np.expm1(float(log_ratio.estimate)), rel=1e-9)
        assert got.conclusion == "not tested"
        assert np.isnan([got.p_value, got.p_adjusted]).all()
    assert result.metric("coverage").absolute.low > 0
    assert "interval by jackknife over units, no test" in to_html(result)
    assert "not tested" in to_text(result)


def test_what_cannot_be_said_is_refused_in_words(logs):
    with pytest.raises(ExperimentConfigError, match="has no test; list it under `secondary`"):
        parse_experiments(
            {
                **logs.config.model_dump(mode="json", exclude_none=True),
                "experiments": {
                    "din": {
                        "layer": "ranking",
                        "variants": {"control": {}, "din": {}},
                        "metrics": {"goals": ["coverage"]},
                    }
                },
            }
        )
    impressions = {"event": "impression", "distinct": "item_id"}
    for value, words in (
        ({"event": "impression"}, "coverage is of items in events"),
        ({"exposure": "latency_ms"}, "coverage is of items in events"),
        ({**impressions, "to_day": 3}, "takes `window_days`"),
    ):
        with pytest.raises(ExperimentConfigError, match=words):
            config(logs, ["m"], m={"type": "coverage", "value": value})
    for metric, words in (
        ({"value": impressions, "catalogue": 7}, "give the number of items that could be shown"),
        ({"value": {"event": "impression", "distinct": "itm_id"}}, "did you mean 'item_id'"),
    ):
        with pytest.raises(ExperimentDataError, match=words):
            analyzed(logs, config(logs, ["m"], m={"type": "coverage", **metric}))


def test_nothing_shown_and_few_units_say_so(logs, simulated):
    nothing = {"type": "coverage", "value": {"event": "imprint", "distinct": "item_id"}}
    got = analyzed(logs, config(logs, ["m"], m=nothing)).metric("m")
    assert got.note == "no item was shown"
    assert np.isnan([got.control, got.value]).all()
    few = simulated(users=120, days=3).write()
    got = analyzed(few, config(few, ["coverage"])).metric("coverage")
    assert got.note == "fewer than 100 units in an arm"
    assert got.control > 0
    assert np.isnan(got.relative.low)
