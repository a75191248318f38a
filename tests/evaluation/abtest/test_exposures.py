"""The exposure log: nothing lost in silence, nothing twice, over crashes, forks and full queues."""

import json
import signal
import subprocess
import sys
import threading
import time

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.abtest.assignment import Assignment
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposure_files import (
    COLUMNS,
    compact,
    dropped_rows,
    export_growthbook,
    exposures_sql,
    log_files,
)
from evaluation.abtest.exposures import ExposureLog, exposure_row, seal_abandoned
from evaluation.errors import EvaluationError


def row(number, variant="control", **more):
    one = Assignment("ranking", "din", 1, variant, {}, "assigned", 17, "user_id", f"Ü{number}")
    return exposure_row(one, request_id=f"r{number}", timestamp=1.75e9 + number, config_hash="c0ffee", **more)


def rows_of(folder):
    """All rows of a log, read as an analysis reads them."""
    return duckdb.sql(exposures_sql(log_files(folder))).df()


def requests_of(folder):
    table = rows_of(folder)
    return sorted(table[table["kind"] == "exposure"]["request_id"])


def test_rows_come_back_as_they_were_written(tmp_path):
    log = ExposureLog(tmp_path)
    assert log.write([row(1, model="din", latency_ms=3.5, attributes={"country": "NO"}), row(2)])
    assert log.flush()
    growing = rows_of(tmp_path)  # readable while the segment grows
    log.close()
    table = rows_of(tmp_path)
    assert set(table.columns) == set(COLUMNS)
    assert len(growing) == len(table) == 2
    first = table.sort_values("request_id").iloc[0]
    assert (first["unit_id"], first["variant"], first["bucket"], first["model"]) == (
        "Ü1",
        "control",
        17,
        "din",
    )
    assert json.loads(first["attributes"]) == {"country": "NO"}
    assert not first["forced"]


def test_a_full_queue_drops_and_says_so_in_the_log(tmp_path):
    log = ExposureLog(tmp_path, capacity=10)
    taken = log.write([row(number, "din" if number % 2 else "control") for number in range(100)])
    assert not taken
    assert log.dropped == 90
    log.close()
    assert len(requests_of(tmp_path)) == 10
    assert dropped_rows(tmp_path) == {("din", "control"): 45, ("din", "din"): 45}


def test_written_and_dropped_add_up_with_many_threads(tmp_path):
    log = ExposureLog(tmp_path, capacity=50, rotate_bytes=2_000)
    threads = [
        threading.Thread(target=lambda k=k: [log.write([row(k * 1000 + n)]) for n in range(300)])
        for k in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    requests = requests_of(tmp_path)
    assert len(requests) == len(set(requests)) == log.written
    assert log.written + log.dropped == 1800
    assert sum(dropped_rows(tmp_path).values()) == log.dropped
    assert len(list(tmp_path.glob("*.jsonl"))) > 1  # rotated
    assert not list(tmp_path.glob("*.open"))


def test_after_a_fork_both_write_and_nothing_is_doubled(tmp_path):
    # In a process of its own: forking this one would fork pytest's threads too.
    code = """
import os, sys
from evaluation.abtest.exposures import ExposureLog
log = ExposureLog(sys.argv[1])
row = lambda n: {"kind": "exposure", "request_id": f"{n}"}
log.write([row(f"parent{n}") for n in range(500)])
child = os.fork()
who = "parent" if child else "child"
log.write([row(f"{who} later {n}") for n in range(500)])
log.close()
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    requests = requests_of(tmp_path)
    assert len(requests) == len(set(requests)) == 1500
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


def test_a_killed_process_loses_at_most_what_waited(tmp_path):
    code = """
import sys, time
from evaluation.abtest.exposures import ExposureLog
log = ExposureLog(sys.argv[1])
log.write([{"kind": "exposure", "request_id": f"{n}"} for n in range(1000)])
log.flush()
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    [segment] = tmp_path.glob("*.open")
    with segment.open("ab") as file:
        file.write(b'{"kind": "exposure", "request_id": "to')  # the kernel stopped in a line
    assert len(requests_of(tmp_path)) == 1000
    ExposureLog(tmp_path).close()  # the next process seals what the dead one left
    assert not list(tmp_path.glob("*.open"))
    assert len(requests_of(tmp_path)) == 1000


def test_a_living_process_keeps_its_segment(tmp_path):
    log = ExposureLog(tmp_path)
    log.write([row(1)])
    log.flush()
    assert seal_abandoned(tmp_path) == []
    log.close()


def test_leaving_the_program_writes_what_waits(tmp_path):
    code = (
        "import sys\nfrom evaluation.abtest.exposures import ExposureLog\n"
        "log = ExposureLog(sys.argv[1])\n"
        "log.write([{'kind': 'exposure', 'request_id': str(n)} for n in range(3000)])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert len(requests_of(tmp_path)) == 3000


def test_a_failing_disk_costs_rows_and_is_counted(tmp_path, monkeypatch):
    log = ExposureLog(tmp_path)
    log.write([row(1)])
    log.flush()
    real = type(log._segment).append

    def full(segment, data):
        segment._file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(log._segment), "append", full)
    log.write([row(2), row(3, "din")])
    log.flush()
    monkeypatch.setattr(type(log._segment) if log._segment else _segment_class(), "append", real)
    log.write([row(4)])
    log.close()
    assert "No space left" in log.last_error
    assert requests_of(tmp_path) == ["r1", "r4"]
    assert log.written + log.dropped == 4
    assert sum(dropped_rows(tmp_path).values()) == log.dropped == 2


def _segment_class():
    from evaluation.abtest import exposures

    return exposures._Segment


def test_a_slow_disk_never_holds_up_a_request(tmp_path, monkeypatch):
    release = threading.Event()
    real = _segment_class().append

    def slow(segment, data):
        release.wait(20)
        real(segment, data)

    monkeypatch.setattr(_segment_class(), "append", slow)
    log = ExposureLog(tmp_path, capacity=100)
    start = time.monotonic()
    for number in range(1000):
        log.write([row(number)])
    taken = time.monotonic() - start
    assert not log.flush(timeout=0.05)
    release.set()
    log.close()
    assert taken < 10
    assert len(requests_of(tmp_path)) + log.dropped == 1000


def test_compaction_keeps_every_row_once_even_after_a_crash(tmp_path):
    log = ExposureLog(tmp_path, rotate_bytes=1000)
    for number in range(30):
        log.write([row(number)])
        log.flush()
    log.close()
    segments = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert len(segments) > 3
    made = compact(tmp_path)
    assert len(made) == len(segments)
    assert not list(tmp_path.glob("*.jsonl"))
    assert len(requests_of(tmp_path)) == 30
    left = next(iter(segments))
    left.write_bytes(segments[left])  # as if the crash came before the segment was removed
    assert len(requests_of(tmp_path)) == 30
    assert compact(tmp_path) == []
    assert len(requests_of(tmp_path)) == 30


def test_export_in_growthbooks_shape(tmp_path):
    log = ExposureLog(tmp_path / "log")
    log.write([row(1), row(2, "din"), {**row(3), "forced": True}, {**row(4), "experiment": "other"}])
    log.close()
    target = tmp_path / "growthbook.csv"
    assert export_growthbook(tmp_path / "log", target, "din") == 2
    assert target.read_text(encoding="utf-8").splitlines() == [
        "user_id,timestamp,experiment_id,variation_id",
        "Ü1,2025-06-15 15:06:41,din,control",
        "Ü2,2025-06-15 15:06:42,din,din",
    ]
    with pytest.raises(ExperimentDataError, match=r"\.parquet or \.csv"):
        export_growthbook(tmp_path / "log", tmp_path / "x.xml")


def test_a_missing_log_and_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(ExperimentDataError, match="no logs"):
        log_files(tmp_path / "nowhere")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EvaluationError, match="cannot be written"):
        ExposureLog(tmp_path / "file" / "log")


def test_odd_rows_are_lost_alone_and_counted(tmp_path):
    log = ExposureLog(tmp_path)
    circular = {}
    circular["self"] = circular
    log.write([{**row(1), "attributes": circular}])
    log.flush()
    log.write([{**row(2), "attributes": {"at": object()}}, row(3)])  # what is no JSON is written as text
    log.close()
    assert requests_of(tmp_path) == ["r2", "r3"]
    assert dropped_rows(tmp_path) == {("din", "control"): 1}


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([42.0, float("nan"), 7.5], ["42", None, "7.5"]),
        ([42, None, 2**60], ["42", None, str(2**60)]),
        (["42.0", "é", None], ["42.0", "é", None]),
    ],
)
def test_ids_of_logs_from_elsewhere_are_text_as_the_assignment_writes_them(tmp_path, ids, texts):
    table = pa.table({"unit_id": pa.array(ids, from_pandas=True), "timestamp": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "log.parquet")
    found = duckdb.sql(
        f"SELECT unit_id, user_id FROM ({exposures_sql(log_files(tmp_path))}) ORDER BY timestamp"
    )
    assert found.fetchall() == [(text, None) for text in texts]
