"""Keyed exposure logs: no id in them, the same analysis with the key, and erasure all the same."""

import copy
import hashlib
import hmac
import json

import duckdb
import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposure_erasure import erase_users
from evaluation.abtest.exposure_files import compact, exposures_sql, log_files
from evaluation.abtest.exposures import ExposureLog
from evaluation.abtest.pseudonyms import KEY, PREFIX, Pseudonyms, digest
from evaluation.errors import EvaluationError

SECRET = "0123456789abcdef secret"


@pytest.mark.parametrize("key", [SECRET, "long " * 30, "ключ из окружения"])
def test_the_database_gives_the_names_that_python_gives(key):
    names = Pseudonyms(key)
    for unit in ("42", "Ünal", "用户42", "a'b"):
        [[found]] = duckdb.execute(f"SELECT {names.sql('$1')}", [unit]).fetchall()
        inner = hashlib.sha256(unit.encode()).hexdigest()
        wanted = names.prefix + hmac.new(key.encode(), inner.encode(), hashlib.sha256).hexdigest()[:32]
        assert found == names.of(unit) == names.of_digest(digest(unit)) == wanted


def test_keys_come_from_the_environment_and_short_ones_are_refused():
    assert Pseudonyms.from_environment({}) is None
    assert Pseudonyms.from_environment({KEY: SECRET}).of(7) == Pseudonyms(SECRET).of("7")
    assert Pseudonyms(SECRET).of(7) != Pseudonyms(SECRET + "!").of(7)
    with pytest.raises(EvaluationError, match="has 5 characters; take at least 16"):
        Pseudonyms.from_environment({KEY: "short"})


def row(user, unit_type="user_id", unit=None):
    return {
        "kind": "exposure",
        "timestamp": 1.75e9,
        "request_id": f"r{user}",
        "unit_type": unit_type,
        "unit_id": unit or user,
        "user_id": user,
        "session_id": None,
        "experiment": "din",
        "variant": "control",
    }


def test_rows_hide_persons_and_nothing_else():
    names = Pseudonyms(SECRET)
    hidden = names.hide(row("Ünal"))
    assert hidden["unit_id"] == hidden["user_id"] == names.of("Ünal")
    assert hidden["session_id"] is None
    assert {key for key, value in row("Ünal").items() if hidden[key] != value} == {"unit_id", "user_id"}
    assert names.hide(row("7", "time_slot", "1750000000"))["unit_id"] == "1750000000"


@pytest.mark.parametrize("in_parquet", [False, True])
def test_an_erased_user_goes_from_a_keyed_log(tmp_path, in_parquet):
    names = Pseudonyms(SECRET)
    log = ExposureLog(tmp_path)
    log.write(
        [names.hide(row(user)) for user in ("ada", "Ünal", "bo")] + [row("Ünal"), row("before the key")]
    )
    log.close()
    if in_parquet:
        compact(tmp_path)
    erased = {digest("Ünal"): 1.75e9 + 1}
    for other in (None, Pseudonyms(SECRET + "!")):
        with pytest.raises(ExperimentDataError, match=rf"keyed hashes, and \${KEY} is not the key"):
            erase_users(tmp_path, erased, other)
    assert erase_users(tmp_path, erased, names) == 1
    left = duckdb.sql(f"SELECT user_id FROM ({exposures_sql(log_files(tmp_path))})").fetchall()
    assert {one for (one,) in left} == {names.of("ada"), names.of("bo"), "before the key"}
    assert erase_users(tmp_path, erased, names) == 0


def test_the_analysis_is_the_same_with_the_key_and_refused_without(simulated):
    one = simulated(users=1200, days=6, lift=0.2)
    plain = copy.copy(one)
    names = Pseudonyms(SECRET)
    keyed = copy.copy(one)
    keyed.folder = one.folder / "keyed"
    # The key came while the experiment ran: the first half of the log has ids, and nobody counts twice.
    later = one.exposures.timestamp > one.exposures.timestamp.median()
    known = {unit: names.of(unit) for unit in one.exposures.unit_id.unique()}
    keyed.exposures = one.exposures.assign(
        unit_id=one.exposures.unit_id.where(~later, one.exposures.unit_id.map(known))
    )

    def analyzed(logs, pseudonyms):
        logs.write()
        with duckdb_connection("500MB") as connection:
            tables = [
                open_exposures(connection, logs.folder / "exposures"),
                open_events(connection, logs.folder / "events"),
            ]
            return analyze(one.config, "din", Logs(*tables, pseudonyms))

    ours, theirs = analyzed(plain, None), analyzed(keyed, names)
    assert theirs.units == ours.units
    assert theirs.metric("ctr").p_value == pytest.approx(ours.metric("ctr").p_value, rel=1e-9)
    assert theirs.check("replay").finding == ours.check("replay").finding
    assert json.dumps(theirs.to_dict()).count(PREFIX) == 0
    with pytest.raises(ExperimentDataError, match=rf"keyed hashes.*give the analysis the key .*\${KEY}"):
        analyzed(keyed, None)
    with pytest.raises(ExperimentDataError, match="another key: the one with which the service ran"):
        analyzed(keyed, Pseudonyms(SECRET + " of another service"))


def test_ids_of_events_are_written_like_those_of_exposures(simulated):
    # A client that sends decomposed letters and blanks around: the assignment reads them as one id, so does the join.
    one = simulated(users=300, days=6)
    named = {unit: f"é{unit}" for unit in one.exposures.unit_id.unique()}
    one.exposures["unit_id"] = one.exposures.unit_id.map(named)
    one.events["user_id"] = [f" e\u0301{unit}" for unit in one.events.user_id]
    one.write()
    with duckdb_connection("500MB") as connection:
        exposures = open_exposures(connection, one.folder / "exposures")
        events = open_events(connection, one.folder / "events")
        result = analyze(one.config, "din", Logs(exposures, events))
    assert result.metric("ctr").control > 0.1
    assert result.check("orphans").status == "green"
    assert result.check("replay").status == "red"  # the log is of other ids than those that were assigned
