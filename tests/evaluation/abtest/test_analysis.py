"""From logs to a verdict: known effects are found, every fault turns its own check red, nothing counts twice."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tea_tasting as tt

from evaluation.abtest.analysis.engines import duckdb_connection, memory_limit, size_in_bytes
from evaluation.abtest.analysis.interleaved import analyze_interleaved
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.interleaving import team_draft
from evaluation.abtest.loading import parse_experiments
from evaluation.abtest.report import write_experiment_report
from evaluation.abtest.report.write import to_text

DAY = 86_400.0
START = 1_767_225_600.0


def analyzed(one, config=None, name="din", rename=None, **settings):
    one.write()
    with duckdb_connection("500MB", threads=2) as connection:
        logs = Logs(
            open_exposures(connection, one.folder / "exposures"),
            open_events(connection, one.folder / "events", rename),
        )
        return analyze(config or one.config, name, logs, dropped=one.dropped, **settings)


@pytest.fixture(scope="module")
def found(simulated):
    """An experiment with a lift of 15%, and its analysis."""
    one = simulated(lift=0.15)
    return one, analyzed(one)


def per_unit(one, first_day=None):
    """Clicks and impressions of each unit, now and before, with pandas."""
    mine = one.exposures[one.exposures.experiment == "din"]
    units = mine.groupby("unit_id").agg(
        first=("timestamp", "min"), variant=("variant", "first"), last=("timestamp", "max")
    )
    until = max(mine.timestamp.max(), one.events.timestamp.max()) + 1e-3
    events = one.events.merge(units, left_on="user_id", right_index=True)
    now = events[(events.timestamp >= events["first"]) & (events.timestamp < until)]
    before = events[(events.timestamp < events["first"]) & (events.timestamp >= events["first"] - 7 * DAY)]
    for prefix, rows in (("", now), ("pre_", before)):
        counts = rows.pivot_table(index="user_id", columns="type", values="item_id", aggfunc="count")
        for kind in ("click", "impression", "purchase"):
            units[prefix + kind] = counts.get(kind, 0)
    units["revenue"] = now[now.type == "purchase"].groupby("user_id")["value"].sum()
    units["sessions"] = now.groupby("user_id")["session_id"].nunique()
    return units.fillna(0.0)


def test_a_real_effect_is_found_with_its_size(found):
    _, result = found
    assert result.trusted, [check for check in result.checks if check.status == "red"]
    assert result.verdict.word == "ship"
    assert result.verdict.rule == "goal got better"
    ctr = result.metric("ctr")
    assert ctr.relative.low < 0.15 < ctr.relative.high
    assert ctr.conclusion == "better"
    assert ctr.cuped == "used"
    assert ctr.variance_saved > 0.05
    assert result.metric("latency_p95").conclusion == "holds"
    assert sum(result.units.values()) == 4000
    assert len(ctr.looks) == 8
    assert [point.label for point in ctr.ages][:2] == ["0", "1"]


def test_numbers_are_those_of_pandas_and_tea_tasting(found):
    one, result = found
    units = per_unit(one)
    theirs = tt.Experiment(
        ctr=tt.RatioOfMeans(
            "click", "impression", numer_covariate="pre_click", denom_covariate="pre_impression"
        ),
        sessions=tt.Mean("sessions"),
    ).analyze(units.reset_index())
    ctr = result.metric("ctr")
    assert [ctr.control, ctr.value, ctr.absolute.estimate] == pytest.approx(
        [theirs["ctr"].control, theirs["ctr"].treatment, theirs["ctr"].effect_size], rel=1e-6
    )
    means = units.groupby("variant")
    for metric, column in (("sessions", "sessions"), ("revenue", "revenue")):
        got = result.metric(metric)
        if got.cuped != "used" and metric == "sessions":
            assert [got.control, got.value] == pytest.approx(list(means[column].mean()), rel=1e-9)
    bought = units.assign(buyer=units.purchase > 0).groupby("variant")["buyer"].mean()
    conversion = analyzed(one, config=without_cuped(one.config)).metric("conversion")
    assert [conversion.control, conversion.value] == pytest.approx(list(bought), rel=1e-9)


def without_cuped(config):
    return changed(config, analysis={"cuped_days": 0})


def changed(config, **sections):
    """The configuration with other settings of the experiment."""
    values = config.model_dump(mode="json", exclude_none=True)
    for name, value in sections.items():
        if name == "definitions":
            values["metrics"] = value
        elif isinstance(value, dict) and name != "metrics":
            values["experiments"]["din"].setdefault(name, {}).update(value)
        else:
            values["experiments"]["din"][name] = value
    return parse_experiments(values)


def test_without_an_effect_nothing_ships(simulated):
    result = analyzed(simulated(seed=3))
    assert result.trusted
    assert result.verdict.word == "inconclusive"
    assert result.verdict.rule == "no difference at the planned size"


def mine(one):
    return one.exposures.experiment == "din"


def units_of(one, variant):
    rows = one.exposures[mine(one)].sort_values("timestamp").drop_duplicates("unit_id")
    return rows[rows.variant == variant]


def without(one, units):
    keep = ~(mine(one) & one.exposures.unit_id.isin(units))
    one.exposures = one.exposures[keep]
    one.events = one.events[~one.events.user_id.isin(units)]


def sample_ratio(one, random):
    without(one, units_of(one, "din").unit_id.sample(frac=0.2, random_state=1))


def sample_ratio_by_day(one, random):
    for variant, early in (("din", True), ("control", False)):
        rows = units_of(one, variant)
        chosen = rows[(rows.timestamp < START + 2 * DAY) == early].unit_id
        without(one, chosen.sample(200, random_state=1))


def sample_ratio_by_country(one, random):
    for variant, country in (("din", "DE"), ("control", "NO")):
        rows = units_of(one, variant)
        without(one, rows[rows.country == country].unit_id.sample(150, random_state=1))


def several_variants(one, random):
    rows = one.exposures[mine(one)].drop_duplicates("unit_id").sample(frac=0.03, random_state=1).copy()
    rows["timestamp"] += 1.0
    rows["variant"] = np.where(rows.variant == "din", "control", "din")
    one.exposures = pd.concat([one.exposures, rows])


def replay(one, random):
    swapped = {}
    for variant, other in (("control", "din"), ("din", "control")):
        for unit in units_of(one, variant).unit_id.sample(40, random_state=1):
            swapped[unit] = other
    rows = mine(one) & one.exposures.unit_id.isin(swapped)
    one.exposures.loc[rows, "variant"] = one.exposures.loc[rows, "unit_id"].map(swapped)


def exposure_loss(one, random):
    one.dropped = {("din", "control"): 20, ("din", "din"): 150, ("k", "control"): 10**6}


def fallback_balance(one, random):
    rows = mine(one) & (one.exposures.variant == "din")
    one.exposures.loc[rows, "fallback"] |= random.random(rows.sum()) < 0.05


def before(one, random):
    treated = units_of(one, "din")
    extra = treated[["unit_id", "timestamp"]].rename(columns={"unit_id": "user_id"})
    extra = extra.assign(
        type="click", timestamp=extra.timestamp - DAY, item_id="1", session_id="s", request_id="old"
    )
    one.events = pd.concat([one.events, extra])


def orphans(one, random):
    rows = random.random(len(one.events)) < 0.05
    one.events.loc[rows, "request_id"] = "lost"


def repeated_events(one, random):
    events = one.events.assign(event_id=[str(number) for number in range(len(one.events))])
    one.events = pd.concat([events, events[random.random(len(events)) < 0.01]])


def clocks(one, random):
    answers = one.events.request_id.str.startswith("r")
    rows = answers & (random.random(len(one.events)) < 0.05)
    one.events.loc[rows, "timestamp"] -= 600


def overlap_k(one, random):
    variant = one.exposures[mine(one)].drop_duplicates("unit_id").set_index("unit_id")["variant"]
    rows = ~mine(one) & one.exposures.unit_id.isin(variant.sample(frac=0.4, random_state=1).index)
    follows = one.exposures.loc[rows, "unit_id"].map(variant)
    one.exposures.loc[rows, "variant"] = np.where(follows == "din", "k", "control")


AMBER = {"orphans", "clocks", "overlap_k"}
FAULTS = [
    sample_ratio,
    sample_ratio_by_day,
    sample_ratio_by_country,
    several_variants,
    replay,
    exposure_loss,
    fallback_balance,
    before,
    repeated_events,
    orphans,
    clocks,
    overlap_k,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_turns_its_own_check_and_only_its_own(simulated, fault):
    one = simulated(users=3000, days=6, seed=5)
    fault(one, np.random.default_rng(0))
    result = analyzed(one)
    name = fault.__name__
    odd = {check.key: check.status for check in result.checks if check.status in ("red", "amber")}
    assert odd == {name: "amber" if name in AMBER else "red"}, [c for c in result.checks if c.key in odd]
    assert result.check(name).advice
    if name in AMBER:
        assert result.verdict.word != "broken"
    else:
        assert result.verdict.word == "broken"
        assert result.verdict.rule == name
        assert result.check(name).title in result.verdict.sentence


def test_units_in_two_variants_are_left_out_of_both(simulated):
    one = simulated(users=3000, days=6, seed=5)
    several_variants(one, None)
    result = analyzed(one)
    assert result.counts["multi_variant_units"] == 90
    assert sum(result.units.values()) == 3000 - 90


def test_forced_and_untriggered_rows_do_not_count(simulated):
    one = simulated(users=2000, days=6)
    units = one.exposures.unit_id.unique()
    one.exposures.loc[one.exposures.unit_id.isin(units[:50]), "forced"] = True
    one.exposures.loc[one.exposures.unit_id.isin(units[50:150]), "could_differ"] = False
    result = analyzed(one)
    assert sum(result.units.values()) == 1850
    assert result.counts["forced_rows"] > 49
    assert "forced by allow lists" in write_experiment_report(
        one.folder / "report", result
    ).markdown.read_text("utf-8")
    everyone = analyzed(one, config=changed(one.config, analysis={"triggered": False}))
    assert sum(everyone.units.values()) == 1950


def small_logs(folder, exposures, events):
    """Hand-made logs: (unit, variant, day, request) and (unit, type, day, more)."""
    from types import SimpleNamespace

    rows = [
        {
            "unit_id": u,
            "variant": v,
            "timestamp": START + d * DAY,
            "request_id": r,
            "experiment": "din",
            "phase": 1,
        }
        for u, v, d, r in exposures
    ]
    did = [{"user_id": u, "type": t, "timestamp": START + d * DAY, **more} for u, t, d, more in events]
    one = SimpleNamespace(folder=folder, dropped={})

    def write():
        for name, table in (("exposures", rows), ("events", did)):
            (folder / name).mkdir(exist_ok=True)
            pd.DataFrame(table).to_parquet(folder / name / "part.parquet", index=False)

    one.write = write
    return one


def definitions(**metrics):
    return {
        "version": 1,
        "layers": {"ranking": {"owns": ["model"]}},
        "metrics": metrics,
        "experiments": {
            "din": {
                "layer": "ranking",
                "status": "running",
                "percent": 100,
                "variants": {"control": {}, "din": {}},
                "metrics": {"goals": list(metrics)},
                "analysis": {"cuped_days": 0, "method": "fixed"},
            }
        },
    }


def values_of(tmp_path, monkeypatch, exposures, events, **metrics):
    monkeypatch.setattr("evaluation.abtest.analysis.run.FEW_UNITS", 1)
    result = analyzed(
        small_logs(tmp_path, exposures, events), config=parse_experiments(definitions(**metrics))
    )
    return {one.metric: (one.control, one.value, one.units_control, one.units) for one in result.metrics}


def test_what_counts(tmp_path, monkeypatch):
    exposures = [
        ("a", "control", 0.5, "r1"),
        ("a", "control", 3.0, "r2"),
        ("b", "control", 1.0, "r3"),
        ("c", "din", 0.6, "r4"),
        ("d", "din", 2.0, "r5"),
        ("z", "din", 9.0, "r6"),
    ]
    events = [
        ("a", "click", 0.4, {"value": 9.0, "kind": "x"}),  # before the first exposure
        ("a", "click", 0.5, {"value": 1.0, "kind": "x"}),  # at once
        ("a", "click", 3.1, {"value": 2.0, "kind": "y"}),
        ("a", "view", 7.6, {"value": None, "kind": "x"}),
        ("c", "click", 2.7, {"value": 4.0, "kind": "x"}),  # after a window of two days
        ("c", "buy", 0.7, {"value": 10.0, "kind": None}),
        ("stranger", "click", 1.0, {"value": 100.0, "kind": "x"}),
    ]
    clicks = {"event": "click"}
    got = values_of(
        tmp_path,
        monkeypatch,
        exposures,
        events,
        all={"type": "mean", "value": clicks},
        summed={"type": "mean", "value": {**clicks, "sum": "value"}},
        windowed={"type": "mean", "value": clicks, "window_days": 2},
        where={"type": "mean", "value": {**clicks, "where": {"kind": ["x"], "value": {"lt": 5}}}},
        clickers={"type": "proportion", "value": clicks},
        kinds={"type": "mean", "value": {"event": "*", "distinct": "kind"}},
        per_exposure={"type": "ratio", "numerator": clicks, "denominator": {"exposure": "count"}},
        later={"type": "mean", "value": {"event": "*", "from_day": 2, "to_day": 4}},
        two={"type": "mean", "value": {"event": ["click", "buy"]}},
    )
    assert got["all"] == (1.0, pytest.approx(1 / 3), 2, 3)
    assert got["summed"] == (1.5, pytest.approx(4 / 3), 2, 3)
    assert got["windowed"] == (0.5, 0.0, 2, 2)  # z's two days are not over
    assert got["where"] == (0.5, pytest.approx(1 / 3), 2, 3)
    assert got["clickers"] == (0.5, pytest.approx(1 / 3), 2, 3)
    assert got["kinds"] == (1.0, pytest.approx(1 / 3), 2, 3)
    assert got["per_exposure"] == (pytest.approx(2 / 3), pytest.approx(1 / 3), 2, 3)
    assert got["later"] == (0.5, 0.5, 2, 2)
    assert got["two"] == (1.0, pytest.approx(2 / 3), 2, 3)


def test_a_cap_is_one_for_all_arms_and_never_erases_a_rare_metric(tmp_path, monkeypatch):
    exposures = [(f"u{n}", "din" if n % 2 else "control", 0.0, f"r{n}") for n in range(40)]
    events = [(f"u{n}", "buy", 0.01, {"value": 1.0 if n else 1000.0}) for n in range(40)]
    bought = {"event": "buy", "sum": "value"}
    got = values_of(
        tmp_path,
        monkeypatch,
        exposures,
        [*events, ("u1", "rare", 0.01, {"value": 5.0})],
        capped={"type": "mean", "value": bought, "cap": 0.9},
        rare={"type": "mean", "value": {"event": "rare", "sum": "value"}, "cap": 0.9},
    )
    assert got["capped"][:2] == (1.0, 1.0)
    assert got["rare"][1] == pytest.approx(5 / 20)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ({"type": "mean", "value": {"event": "click", "sum": "kind"}}, "holds string and no numbers"),
        ({"type": "mean", "value": {"event": "click", "sum": "valeu"}}, "did you mean 'value'"),
        ({"type": "mean", "value": {"event": "click", "distinct": "knid"}}, "did you mean 'kind'"),
        ({"type": "mean", "value": {"event": "click", "where": {"nope": 1}}}, "asks for the column 'nope'"),
        ({"type": "mean", "value": {"exposure": "latency"}}, "needs the column 'latency'"),
        ({"type": "quantile", "quantile": 0.9, "value": {"exposure": "variant"}}, "holds string"),
    ],
)
def test_metrics_that_do_not_fit_the_logs(tmp_path, monkeypatch, metric, words):
    exposures = [("a", "control", 0, "r1"), ("b", "din", 0, "r2")]
    with pytest.raises(ExperimentDataError, match=words):
        values_of(
            tmp_path, monkeypatch, exposures, [("a", "click", 1, {"value": 1.0, "kind": "x"})], m=metric
        )


def test_logs_that_cannot_be_analysed(simulated):
    one = simulated(users=300, days=3)
    with pytest.raises(ExperimentDataError, match="did you mean 'din'"):
        analyzed(one, name="dinn")
    with pytest.raises(ExperimentDataError, match=r"phase 7. It holds: din \(phase 1\)"):
        analyzed(one, phase=7)
    with pytest.raises(ExperimentDataError, match="'tipe'; did you mean 'type'"):
        analyzed(one, rename={"type": "tipe"})
    with pytest.raises(ExperimentDataError, match="phase 1 before --until"):
        analyzed(one, until=START)
    with duckdb_connection("500MB") as connection:
        logs = Logs(open_exposures(connection, one.folder / "exposures"))
        with pytest.raises(ExperimentDataError, match="add --events"):
            analyze(one.config, "din", logs)
    one.exposures["forced"] = True
    with pytest.raises(ExperimentDataError, match="rows were forced"):
        analyzed(one)
    one.exposures["forced"] = False
    one.events = one.events.drop(columns="timestamp")
    with pytest.raises(ExperimentDataError, match="'timestamp' is missing in the table of events"):
        analyzed(one)
    one.exposures["timestamp"] = "yesterday"
    with pytest.raises(ExperimentDataError, match="must hold timestamps"):
        analyzed(one)


def test_everyone_in_one_arm(simulated):
    one = simulated(users=600, days=3)
    one.exposures = one.exposures[(one.exposures.experiment != "din") | (one.exposures.variant == "din")]
    result = analyzed(one)
    assert result.check("sample_ratio").status == "red"
    assert result.verdict.word == "broken"
    assert result.units["control"] == 0


@pytest.mark.parametrize(
    ("logged", "did"),
    [
        ("Zo\u00eb", "Zoe\u0308"),  # one letter, or two that are one
        ("Zoe\u0308", "Zo\u00eb"),
        ("\u674e\u96f7", " \u674e\u96f7 "),
        ("\U0001f600", "\U0001f600"),
        ("42", 42.0),
    ],
)
def test_an_id_is_one_however_it_is_written(tmp_path, monkeypatch, logged, did):
    got = values_of(
        tmp_path,
        monkeypatch,
        [(logged, "control", 0, "r1"), ("7", "din", 0, "r2")],
        [(did, "click", 0.01, {}), (did, "click", 0.02, {})],
        clicks={"type": "mean", "value": {"event": "click"}},
    )
    assert got["clicks"] == (2.0, 0.0, 1, 1)


def test_what_was_done_before_the_first_exposure_is_no_effect(tmp_path, monkeypatch):
    exposures = [(f"u{n}", "din" if n % 2 else "control", 5.0, f"r{n}") for n in range(40)]
    events = [(f"u{n}", "click", 1.0, {}) for n in range(40)]
    got = values_of(
        tmp_path, monkeypatch, exposures, events, clicks={"type": "mean", "value": {"event": "click"}}
    )
    assert got["clicks"] == (0.0, 0.0, 20, 20)


def test_a_unit_that_the_events_do_not_have(tmp_path):
    one = small_logs(
        tmp_path, [("a", "control", 0, "r1"), ("b", "din", 0, "r2")], [("a", "click", 1, {"device": "d"})]
    )
    config = definitions(clicks={"type": "mean", "value": {"event": "click"}})
    config["layers"]["ranking"]["unit"] = "device_id"
    with pytest.raises(
        ExperimentDataError,
        match=r"neither the unit's column 'device_id' nor request_id.* did you mean 'device'",
    ):
        analyzed(one, config=parse_experiments(config))


def test_a_metric_without_variance_says_so(tmp_path):
    exposures = [(f"u{n}", "din" if n % 2 else "control", 0.0, f"r{n}") for n in range(600)]
    events = [(f"u{n}", "view", 0.01, {}) for n in range(600)]
    config = parse_experiments(definitions(same={"type": "mean", "value": {"event": "view"}}))
    [same] = analyzed(small_logs(tmp_path, exposures, events), config=config).metrics
    assert "no variance" in same.note
    assert same.conclusion == "not yet"


def test_times_and_ids_of_other_types_and_renamed_columns(found):
    one, result = found
    from copy import copy

    other = copy(one)
    other.folder = one.folder / "other"
    other.exposures = one.exposures.assign(
        timestamp=pd.to_datetime(one.exposures.timestamp, unit="s", utc=True),
        attributes=[json.dumps({"country": value}) for value in one.exposures.country],
    ).drop(columns="country")
    other.events = one.events.assign(timestamp=(one.events.timestamp * 1000).astype("int64"))
    other.events = other.events.rename(columns={"type": "kind_of_event"})
    again = analyzed(other, rename={"type": "kind_of_event"})
    assert again.metric("ctr").absolute.estimate == pytest.approx(
        result.metric("ctr").absolute.estimate, rel=1e-6
    )
    assert again.units == result.units
    assert [point.label for point in again.metric("ctr").segments[0].points] == [
        point.label for point in result.metric("ctr").segments[0].points
    ]


def test_methods(found):
    one, _ = found
    always = analyzed(one, config=changed(one.config, analysis={"method": "always_valid"}))
    wide, tight = always.metric("ctr"), found[1].metric("ctr")
    assert wide.relative.high - wide.relative.low > tight.relative.high - tight.relative.low
    running = changed(one.config, analysis={"method": "fixed", "planned_n": 10**6})
    fixed = analyzed(one, config=running)
    assert np.isnan(fixed.metric("ctr").p_value)
    assert (fixed.verdict.word, fixed.verdict.rule) == ("running", "end not reached")
    unplanned = changed(one.config, analysis={"planned_n": None, "mde": 0.1})
    assert analyzed(one, config=unplanned).planned > 100


def test_few_days_say_running_and_few_units_say_nothing(simulated):
    one = simulated(users=150, days=3, lift=0.5)
    result = analyzed(one)
    assert (result.verdict.word, result.verdict.rule) == ("running", "too few days")
    assert "fewer than 100 units" in result.metric("ctr").note


def test_the_end_of_the_data_can_be_set(found):
    one, result = found
    early = analyzed(one, until=START + 3 * DAY)
    assert early.days == pytest.approx(3, abs=0.01)
    assert sum(early.units.values()) < sum(result.units.values())
    assert len(early.metric("ctr").looks) == 3
    # The third look of the whole analysis is what was seen on that day.
    assert early.metric("ctr").looks[-1].relative.estimate == pytest.approx(
        result.metric("ctr").looks[2].relative.estimate, rel=1e-6
    )


def test_the_report(found):
    one, result = found
    paths = write_experiment_report(one.folder / "report", result)
    html = paths.html.read_text(encoding="utf-8")
    assert "Ship din." in html
    assert html.count("<svg") >= 5
    assert "http" not in html.replace("http://www.w3.org", "")  # nothing is loaded
    assert "Attention to history" in html
    document = json.loads(paths.json.read_text(encoding="utf-8"))
    assert document["verdict"]["word"] == "ship"
    assert document["metrics"][0]["metric"] == "ctr"
    assert "# din: ship" in paths.markdown.read_text(encoding="utf-8")
    assert to_text(result).startswith("SHIP")


def test_a_red_check_hides_the_numbers(simulated):
    one = simulated(users=2000, days=6, lift=0.3)
    exposure_loss(one, None)
    result = analyzed(one)
    paths = write_experiment_report(one.folder / "report", result)
    markdown = paths.markdown.read_text(encoding="utf-8")
    assert markdown.startswith("# din: broken")
    assert "Goals" not in markdown
    assert "raise its capacity" in markdown
    assert "Goals" not in to_text(result)
    html = paths.html.read_text(encoding="utf-8")
    assert html.index("<details><summary>Show them") < html.index("Goals")


def test_a_log_in_pieces_is_the_same_log(found):
    one, result = found
    table = pq.read_table(one.folder / "exposures" / "part.parquet").to_pandas()
    folder = one.folder / "pieces"
    (folder / "exposures").mkdir(parents=True)
    half = len(table) // 2
    table[:half].to_parquet(folder / "exposures" / "a.parquet", index=False)
    with (folder / "exposures" / "b.jsonl").open("w", encoding="utf-8") as file:
        for row in table[half:].to_dict("records"):
            row["attributes"] = {"country": row.pop("country")}
            file.write(json.dumps(row) + "\n")
        file.write('{"kind": "exposure", "timestamp": 17')  # cut off
    with duckdb_connection("500MB", threads=2) as connection:
        logs = Logs(
            open_exposures(connection, folder / "exposures"), open_events(connection, one.folder / "events")
        )
        config = changed(one.config, analysis={"segments": []})
        again = analyze(config, "din", logs)
    assert again.units == result.units
    assert again.metric("ctr").p_value == pytest.approx(result.metric("ctr").p_value, rel=1e-6)


def slots_config(**analysis):
    values = definitions(
        ctr={"type": "ratio", "numerator": {"event": "click"}, "denominator": {"event": "impression"}}
    )
    values["layers"]["ranking"] |= {"unit": "time_slot", "slot_minutes": 60}
    values["experiments"]["din"]["analysis"] |= {"min_days": 1, "washout_minutes": 10, **analysis}
    return parse_experiments(values)


def test_a_switchback_is_analysed_by_slot(tmp_path):
    # Busy and quiet hours: requests of an hour go together, so the hours are the units.
    config = slots_config()
    assigner = compile_assigner(config)
    random = np.random.default_rng(2)
    exposures, events = [], []
    for hour in range(240):
        start = START + hour * 3600
        one = assigner.assign({}, now=start + 5).assignments[0]
        rate = 0.2 * random.gamma(20, 1 / 20) * (1.3 if one.variant == "din" else 1)
        for number in range(30):
            at, request = (start + 120 * number) / DAY, f"r{hour}-{number}"
            exposures.append((one.unit, one.variant, at - START / DAY, request))
            clicked = random.random() < (rate if number >= 5 else 0.9)  # what came before still shows
            kinds = ["impression", *(["click"] if clicked else [])]
            events.extend(
                (f"u{number}", kind, at - START / DAY + 1e-4, {"request_id": request}) for kind in kinds
            )
    result = analyzed(small_logs(tmp_path, exposures, events), config=config)
    assert result.unit == "time_slot"
    ctr = result.metric("ctr")
    assert ctr.units + ctr.units_control == 240
    assert ctr.control == pytest.approx(0.2, abs=0.03)  # without the ten minutes at the start
    assert ctr.conclusion == "better"
    assert ctr.relative.low < 0.3 < ctr.relative.high
    assert result.check("replay").status == "green"


def test_few_slots_show_nothing(tmp_path):
    config = slots_config(washout_minutes=0)
    assigner = compile_assigner(config)
    exposures = []
    for hour in range(20):
        one = assigner.assign({}, now=START + hour * 3600).assignments[0]
        exposures.append((one.unit, one.variant, hour / 24, f"r{hour}"))
    events = [("u", "impression", 0.5, {"request_id": "r3"})]
    [ctr] = analyzed(small_logs(tmp_path, exposures, events), config=config).metrics
    assert "fewer than 20 units" in ctr.note


def mixed_logs(folder, better):
    """Mixed lists of 400 users who click what the better ranker brings more often."""
    random = np.random.default_rng(0)
    config = definitions(m={"type": "mean", "value": {"event": "click"}})
    config["experiments"]["din"] |= {"interleave": True}
    exposures, events = [], []
    for user in range(400):
        items, teams = team_draft(range(10), range(100, 110), 6, salt="din", request_id=f"r{user}")
        exposures.append(
            {
                "unit_id": f"u{user}",
                "variant": "interleaved",
                "timestamp": START + user,
                "request_id": f"r{user}",
                "experiment": "din",
                "phase": 1,
                "teams": json.dumps(dict(zip(map(str, items), teams, strict=True))),
            }
        )
        for item, team in zip(items, teams, strict=True):
            if random.random() < (0.4 if team == better else 0.2):
                click = {"user_id": f"u{user}", "type": "click", "timestamp": START + user, "item_id": item}
                events += [{**click, "request_id": f"r{user}"}] * 2  # a double click is one vote
    for name, table in (("exposures", exposures), ("events", events)):
        (folder / name).mkdir()
        pd.DataFrame(table).to_parquet(folder / name / "part.parquet", index=False)
    return parse_experiments(config)


@pytest.mark.parametrize(
    ("better", "words"), [("b", "Users prefer din"), ("a", "Users prefer control"), ("", "No pref")]
)
def test_interleaving_finds_the_better_ranker(tmp_path, better, words):
    config = mixed_logs(tmp_path, better)
    with duckdb_connection("500MB", threads=2) as connection:
        logs = Logs(
            open_exposures(connection, tmp_path / "exposures"), open_events(connection, tmp_path / "events")
        )
        result = analyze_interleaved(config, "din", logs)
        with pytest.raises(ExperimentDataError, match="ab interleave"):
            analyze(config, "din", logs)
    assert result.verdict().startswith(words)
    assert result.users == 400
    assert result.credits[0] + result.credits[1] == pytest.approx(400 * 3 * (0.6 if better else 0.4), rel=0.1)
    assert "credited clicks" in result.to_text()


def test_interleaving_needs_its_kind_of_experiment_and_logs(found):
    one, _ = found
    with duckdb_connection("500MB") as connection:
        logs = Logs(open_exposures(connection, one.folder / "exposures"), None)
        with pytest.raises(ExperimentDataError, match="mixes no lists"):
            analyze_interleaved(one.config, "din", logs)


def test_what_users_do_after_the_experiment_counts_only_inside_windows(tmp_path, monkeypatch):
    exposures = [(f"u{n}", "din" if n % 2 else "control", 0.1 * n, f"r{n}") for n in range(10)]
    events = [(f"u{n}", "click", day, {}) for n in range(10) for day in (0.1 * n + 0.01, 3.0)]
    got = values_of(
        tmp_path,
        monkeypatch,
        exposures,
        [*events, ("stranger", "click", 20.0, {})],
        open={"type": "mean", "value": {"event": "click"}},
        week={"type": "mean", "value": {"event": "click"}, "window_days": 7},
    )
    assert got["open"][:2] == (1.0, 1.0)  # the experiment was over on day 3
    assert got["week"] == (2.0, 2.0, 5, 5)


def test_units_in_pieces_give_the_same_numbers(found, monkeypatch):
    one, result = found
    monkeypatch.setattr("evaluation.abtest.analysis.pieces._units_at_once", lambda table, columns: 900)
    # As a log that is too large to look at every request.
    monkeypatch.setattr("evaluation.abtest.analysis.event_checks.REQUESTS", result.counts["rows"] // 3)
    again = analyzed(one)
    for before, after in zip(result.metrics, again.metrics, strict=True):
        assert after.absolute.estimate == pytest.approx(before.absolute.estimate, rel=1e-9)
        assert after.p_value == pytest.approx(before.p_value, rel=1e-6)
        assert [point.relative.estimate for point in after.ages] == pytest.approx(
            [point.relative.estimate for point in before.ages], rel=1e-9, nan_ok=True
        )
    whole, part = ([one.check(key).finding for key in ("orphans", "clocks")] for one in (result, again))
    assert ["one request in" in finding for finding in part] == [True, True]
    count = [float(re.search(r"of ([\d,]+)", finding)[1].replace(",", "")) for finding in (whole[0], part[0])]
    assert 3 < count[0] / count[1] < 5
    assert [again.check(key).status for key in ("orphans", "clocks")] == ["green", "green"]


def test_memory_is_shared_out():
    assert [size_in_bytes(one) for one in ("4GB", "1.5 GiB", "476.8 MiB", "80%", "lots")] == [
        4e9,
        1.5 * 2**30,
        476.8 * 2**20,
        None,
        None,
    ]
    with duckdb_connection("1GB") as connection:
        connection.raw_sql("CREATE TABLE numbers AS SELECT 1 AS one")
        table = connection.table("numbers")
        assert memory_limit(table) == pytest.approx(
            0.6e9, rel=0.01
        )  # the rest is Python's and what DuckDB does not count
        [[threads]] = connection.raw_sql("SELECT current_setting('threads')").fetchall()
        assert 1 <= threads <= 2


def test_rows_without_a_time_or_a_unit_are_left_out_and_counted(simulated):
    one = simulated(users=900, days=6)
    rows = one.exposures.index[mine(one)]
    before = analyzed(one)
    one.exposures.loc[rows[:7], "timestamp"] = np.nan
    one.exposures.loc[rows[7:9], "timestamp"] = np.inf
    one.exposures.loc[rows[9:20], "unit_id"] = None
    one.exposures.loc[rows[20:23], "unit_id"] = ""
    one.events.loc[one.events.index[:50], "timestamp"] = np.nan
    result = analyzed(one)
    counts = result.counts
    assert (counts["rows_without_time"], counts["rows_without_unit"]) == (9, 14)
    assert counts["rows"] == before.counts["rows"]
    markdown = write_experiment_report(one.folder / "report", result).markdown.read_text("utf-8")
    assert "14 had no unit and 9 no time" in markdown


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda one: one.events.update({"value": np.where(one.events.type == "purchase", np.inf, np.nan)}),
            "adds up infinite values",
        ),
        (lambda one: one.events.update({"value": "12.50"}), "holds string and no numbers"),
        (
            lambda one: one.exposures.update({"latency_ms": "fast"}),
            "needs numbers, and the column holds string",
        ),
        (lambda one: one.exposures.update({"latency_ms": -1.0}), "needs values of at least 0"),
    ],
)
def test_values_that_are_no_numbers_are_refused_by_name(simulated, change, words):
    one = simulated(users=300, days=6)
    for name in ("events", "exposures"):
        setattr(one, name, Columns(getattr(one, name)))
    change(one)
    with pytest.raises(ExperimentDataError, match=words):
        analyzed(one)


class Columns(pd.DataFrame):
    """A table whose `update` sets whole columns."""

    def update(self, columns):
        for name, values in columns.items():
            self[name] = values


def test_events_that_nobody_sent_are_missed(simulated):
    one = simulated(users=600, days=6)
    one.events = one.events[one.events.type == "purchase"]
    result = analyzed(one)
    assert "an arm has nothing to divide by" in result.metric("ctr").note
    assert result.verdict.word == "running"
    assert "nothing to divide by" in result.verdict.sentence
