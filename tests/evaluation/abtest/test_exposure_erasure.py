"""Of an erased user no row remains in the exposure log, and of the others every one."""

import hashlib
import json

import duckdb
import pytest

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposure_erasure import SESSION, erase_users
from evaluation.abtest.exposure_files import compact, dropped_rows, exposures_sql, log_files
from evaluation.abtest.exposures import ExposureLog
from evaluation.abtest.pseudonyms import Pseudonyms

AT = 1.75e9


def named(*users, at=AT + 100):
    """Erasures by digest, as the event log keeps them."""
    return {hashlib.sha256(user.encode()).hexdigest(): at for user in users}


def row(request, user, unit_type="user_id", unit=None, at=AT):
    return {
        "kind": "exposure",
        "timestamp": at,
        "request_id": request,
        "unit_type": unit_type,
        "unit_id": user if unit is None else unit,
        "user_id": user,
        "experiment": "din",
        "variant": "control",
        "attributes": {"country": "NO"},
    }


ROWS = [
    row("r1", "Ünal"),
    row("r2", "ada"),
    row("r3", "Ünal", "session_id", "s1"),  # the unit is a session of the user's
    row("r4", None, "session_id", "Ünal"),  # a session that happens to be called like the user
    row("r5", None, "user_id", "Ünal"),  # a log without the column user_id
    row("r6", "Ünal", at=AT + 101),  # what came after
    row("r7", "Ünal2"),
    row("r8", None, "time_slot", "1750000000"),
]
KEPT = ["r2", "r4", "r6", "r7", "r8"]


def write(folder, rows=ROWS):
    log = ExposureLog(folder)
    log.write(rows)
    log.close()


def requests(folder):
    found = duckdb.sql(f"SELECT request_id FROM ({exposures_sql(log_files(folder))}) WHERE kind = 'exposure'")
    return sorted(one for (one,) in found.fetchall())


@pytest.mark.parametrize("in_parquet", [False, True])
def test_rows_of_an_erased_user_go_and_all_others_stay_as_they_were(tmp_path, in_parquet):
    write(tmp_path)
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", [row("r9", "eve")])
    [first] = tmp_path.glob("*.jsonl")
    with first.open("a", encoding="utf-8") as file:
        file.write('{"kind": "dropped", "experiment": "din", "variant": "control", "rows": 3}\n[]\nhalf a li')
    if in_parquet:
        compact(tmp_path)
    before = {path: path.read_bytes() for path in log_files(tmp_path / "more")}
    assert erase_users(tmp_path, named("Ünal", "nobody")) == 1
    assert requests(tmp_path) == [*KEPT, "r9"]
    assert {path: path.read_bytes() for path in before} == before, "a file without such rows is left alone"
    assert dropped_rows(tmp_path) == {("din", "control"): 3}
    columns = "attributes::VARCHAR, unit_type, timestamp"
    kept = duckdb.sql(f"SELECT {columns} FROM ({exposures_sql(log_files(tmp_path))}) WHERE request_id = 'r2'")
    [(attributes, unit_type, timestamp)] = kept.fetchall()
    assert (json.loads(attributes), unit_type, timestamp) == ({"country": "NO"}, "user_id", AT)
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path not in log_files(tmp_path)]
    assert [path.name for path in left] == [".erased.json"]
    assert "Ünal" not in left[0].read_text("utf-8")
    if not in_parquet:
        assert "half a li" in first.read_text("utf-8")
        compact(tmp_path)
        assert requests(tmp_path) == [*KEPT, "r9"]


@pytest.mark.parametrize("in_parquet", [False, True])
@pytest.mark.parametrize("key", [None, "a key of thirty-two characters !!"])
def test_rows_of_sessions_that_were_an_erased_users_go_too(tmp_path, in_parquet, key):
    pseudonyms = Pseudonyms(key) if key else None
    rows = [
        {**row("r1", None, "session_id", "s1"), "session_id": "s1"},
        {**row("r2", None, "session_id", "s1", at=AT + 101), "session_id": "s1"},
        {**row("r3", None, "session_id", "s2"), "session_id": "s2"},
        {**row("r4", "eve", "user_id", "eve"), "session_id": "s1"},  # somebody else at the same computer
        row("r5", "s1"),
    ]
    write(tmp_path, [pseudonyms.hide(one) for one in rows] if pseudonyms else rows)
    if in_parquet:
        compact(tmp_path)
    [(name, at)] = named("s1").items()
    assert erase_users(tmp_path, {SESSION + name: at}, pseudonyms) == 1
    assert requests(tmp_path) == ["r2", "r3", "r4", "r5"]


def test_files_are_searched_once_and_again_for_new_erasures_and_new_files(tmp_path):
    write(tmp_path)
    assert erase_users(tmp_path, {}) == 0
    assert erase_users(tmp_path, named("ada")) == 1
    [file] = tmp_path.glob("*.jsonl")
    file.write_text(json.dumps(row("r2", "ada")) + "\n" + file.read_text("utf-8"), "utf-8")
    assert erase_users(tmp_path, named("ada")) == 0, "it was searched for them already"
    assert erase_users(tmp_path, named("ada", "Ünal")) == 1
    assert requests(tmp_path) == ["r4", "r6", "r7", "r8"]
    write(tmp_path, [row("s1", "ada"), row("s2", "bob")])
    assert erase_users(tmp_path, named("ada", "Ünal")) == 1
    assert requests(tmp_path) == ["r4", "r6", "r7", "r8", "s2"]
    (tmp_path / ".erased.json").write_text("damaged")
    assert erase_users(tmp_path, named("ada", "Ünal")) == 0


def test_a_segment_that_grows_is_searched_when_it_is_sealed(tmp_path):
    log = ExposureLog(tmp_path)
    log.write(ROWS)
    log.flush()
    assert erase_users(tmp_path, named("Ünal")) == 0
    log.close()
    assert erase_users(tmp_path, named("Ünal")) == 1
    assert requests(tmp_path) == KEPT


def test_everybody_erased_leaves_a_log_without_rows(tmp_path):
    for in_parquet in (False, True):
        folder = tmp_path / str(in_parquet)
        write(folder, [row("r1", "ada")])
        if in_parquet:
            compact(folder)
        assert erase_users(folder, named("ada")) == 1
        assert requests(folder) == []


def test_a_missing_log_is_no_fault_and_a_damaged_file_keeps_nothing_else_from_being_done(tmp_path):
    assert erase_users(tmp_path / "none", named("ada")) == 0
    (tmp_path / "a.parquet").write_bytes(b"damaged")
    write(tmp_path)
    with pytest.raises(ExperimentDataError, match=r"may remain in 1 files .*a\.parquet"):
        erase_users(tmp_path, named("Ünal"))
    (tmp_path / "a.parquet").unlink()
    assert requests(tmp_path) == KEPT
