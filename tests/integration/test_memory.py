"""Tables that cannot fit this machine: refused before they are made, except where they lie on parameter servers."""

import pytest

from easyrec.errors import ConfigError, TrainingError
from easyrec.fitting import fit
from easyrec.preparation import prepare
from easyrec.training import memory
from tests.integration.tiny import pipeline

pytestmark = pytest.mark.integration


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 1000)


def test_a_container_has_no_more_memory_than_its_limit(monkeypatch, tmp_path):
    whole = memory.machine_memory()
    assert whole > 1 << 28
    for text, expected in (("max", whole), ("12345678", 12345678), (str(1 << 60), whole)):
        limit = tmp_path / "memory.max"
        limit.write_text(text + "\n")
        monkeypatch.setattr(memory, "_CONTROL_GROUP", limit)
        assert memory.machine_memory() == pytest.approx(expected)


def test_tables_that_do_not_fit_are_refused_before_the_run_is_replaced(data, tmp_path, small_machine):
    config = pipeline(data, tmp_path, features={"movie_id": "id"})
    with pytest.raises(
        TrainingError, match=r"the largest is 'movie_id', \d+ rows of 4 values. Lower `embedding.dim`"
    ):
        prepare(config)
    assert not (tmp_path / "films").exists()


def test_what_tables_take_counts_storage_and_slots_once_a_table(data, tmp_path):
    config = pipeline(data, tmp_path)
    config["embedding"] = {"dim": 4, "storage": "bfloat16"}
    prepared = prepare(config)
    sizes = memory.table_bytes(prepared.config, prepared.encoder.schema)
    rows = {output.table: output.rows for output in prepared.encoder.schema.ids}
    assert sizes == {table: count * (2 * 4 + 4 * 4) for table, count in rows.items()}, (
        "adagrad has a slot a value"
    )
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)


def test_the_chief_of_parameter_servers_makes_no_table_before_it_needs_one(data, tmp_path, small_machine):
    prepared = prepare(pipeline(data, tmp_path), remote=True)
    assert "network" not in vars(prepared)
    with pytest.raises(TrainingError, match="the embedding tables take"):
        assert prepared.network
    with pytest.raises(TrainingError, match="the embedding tables take"):
        fit(prepared, cluster="local:workers=1,ps=1")  # all of whose processes are on this machine


def test_a_model_that_cannot_be_built_is_found_out_before_the_run_begins(data, tmp_path, monkeypatch):
    def refuse(config, schema, *_):
        assert {output.rows for output in schema.ids} == {1}
        raise ConfigError("a plug-in's model does not take this")

    monkeypatch.setattr("easyrec.models.build.build_network", refuse)
    with pytest.raises(ConfigError, match="a plug-in's model"):
        prepare(pipeline(data, tmp_path), remote=True)
    assert not (tmp_path / "films").exists()
