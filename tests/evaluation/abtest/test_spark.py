"""The same analysis on Spark: the numbers of DuckDB, from the same expressions."""

import json
import shutil

import pandas as pd
import pytest

from evaluation.abtest.analysis.engines import connected, duckdb_connection
from evaluation.abtest.analysis.holdout import analyze_holdout
from evaluation.abtest.analysis.interleaved import analyze_interleaved
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import lost_rows, open_events, open_exposures
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.interleaving import team_draft
from evaluation.abtest.loading import parse_experiments

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    # Sockets to Java's process are closed when the session is collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
START = 1_767_225_600.0


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip(
        "pyspark.sql", reason="PySpark is not installed; it comes with the extra `spark`"
    )
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no `java`")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = sql.SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def same(one, other, path=""):
    """Everything that two results say, numbers to 1e-9."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for name in one:
            same(one[name], other[name], f"{path}.{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for place, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{path}[{place}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-12), path
    else:
        assert one == other, path


def both(folder, work):
    """What a function of the logs says on either engine."""
    found = []
    for engine in ("duckdb", "spark"):
        with connected(engine, "1GB") as connection:
            logs = Logs(
                open_exposures(connection, folder / "exposures"), open_events(connection, folder / "events")
            )
            found.append(work(logs))
    return found


def test_an_experiment(spark, simulated):
    one = simulated(users=1500, days=6, lift=0.2)
    one.exposures["attributes"] = [json.dumps({"country": value}) for value in one.exposures.country]
    one.exposures = one.exposures.drop(columns="country")
    one.write()
    # Half of the log is a segment that still grows, with its losses, and a line that is half there.
    path = one.folder / "exposures" / "part.parquet"
    table = pd.read_parquet(path)
    table[::2].to_parquet(path, index=False)
    rows = table[1::2].to_dict("records")
    lost = {"kind": "dropped", "timestamp": START, "experiment": "din", "variant": "din", "rows": 3}
    lines = [json.dumps({**row, "attributes": json.loads(row["attributes"])}) for row in rows]
    text = "\n".join([*lines, json.dumps(lost), '{"kind": "exposure", "timestamp": 17'])
    (one.folder / "exposures" / "b.jsonl.open").write_text(text, encoding="utf-8")

    def work(logs):
        dropped = lost_rows(logs.exposures)
        assert dropped == {("din", "din"): 3}
        return analyze(one.config, "din", logs, dropped=dropped).to_dict()

    ours, theirs = both(one.folder, work)
    assert ours["verdict"]["word"] == "ship"
    assert len(ours["metrics"][0]["segments"][0]["points"]) == 3
    same(ours, theirs)


def test_mixed_lists_and_the_holdout(spark, tmp_path):
    values = {
        "version": 1,
        "holdout": {"percent": 30},
        "layers": {"ranking": {"owns": ["model"]}},
        "experiments": {
            "mixed": {
                "layer": "ranking",
                "status": "running",
                "percent": 100,
                "interleave": True,
                "variants": {"control": {}, "din": {}},
            }
        },
    }
    config = parse_experiments(values)
    exposures, events = [], []
    for user in range(300):
        items, teams = team_draft(range(9), range(20, 29), 5, salt="mixed", request_id=f"r{user}")
        common = {"timestamp": START + 600.0 * user, "request_id": f"r{user}"}
        named = json.dumps(dict(zip(map(str, items), teams, strict=True)))
        exposures.append(
            common
            | {
                "unit_id": f"u{user}",
                "experiment": "mixed",
                "phase": 1,
                "variant": "interleaved",
                "teams": named,
            }
        )
        for place, item in enumerate(items):
            shown = {"user_id": f"u{user}", **common, "item_id": str(item)}
            events.append({**shown, "type": "impression"})
            if (user * 7 + place * 3) % 5 == 0:
                events.append({**shown, "type": "click"})
    for name, rows in (("exposures", exposures), ("events", events)):
        (tmp_path / name).mkdir()
        pd.DataFrame(rows).to_parquet(tmp_path / name / "part.parquet", index=False)
    ours, theirs = both(tmp_path, lambda logs: analyze_interleaved(config, "mixed", logs).to_text())
    assert ours == theirs
    same(*both(tmp_path, lambda logs: analyze_holdout(config, logs.events, ["ctr", "coverage"]).to_dict()))


def test_what_is_wrong_is_said_in_words(spark, tmp_path):
    with connected("spark") as connection:
        with pytest.raises(ExperimentDataError, match="no logs in"):
            open_exposures(connection, tmp_path)
        with pytest.raises(ExperimentDataError, match="no events in"):
            open_events(connection, tmp_path)
    with (
        pytest.raises(ExperimentDataError, match=r"Spark: .*PATH_NOT_FOUND"),
        connected("spark") as connection,
    ):
        open_events(connection, "file:///nowhere/at/all")
    with pytest.raises(ExperimentDataError, match="did you mean 'spark'"), connected("sparc"):
        pass
    with duckdb_connection("1GB") as connection:
        assert connection.name == "duckdb"
