import json

import pytest

from easyrec.config.loader import parse_config
from easyrec.errors import ConfigError
from easyrec.run import RunError, RunFolder, abandon, changed_data, find_place, open_run, start_run

CONFIG = {
    "data": {"train": "a.parquet"},
    "features": {"x": "number", "y": {"type": "number", "normalize": "log1p"}},
    "model": {"type": "wide_and_deep", "hidden_units": [4]},
    "tasks": {"label": "binary"},
}


@pytest.fixture
def config():
    return parse_config(CONFIG)


@pytest.fixture
def run(tmp_path, config):
    place = find_place(tmp_path / "runs" / "one")
    start_run(place, config)
    return place


def test_a_new_run_holds_its_configuration(run, config):
    assert open_run(run.directory, config) == run
    assert run.config() == config
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "data.json"]
    assert run.summary() == {}
    assert run.logged() == []


def test_a_place_is_free_when_it_is_absent_empty_or_holds_prepared_data_only(tmp_path):
    for number, parts in enumerate(([], ["prepared"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        for part in parts:
            (folder / part).mkdir()
        assert find_place(folder) == RunFolder(folder)
    assert find_place(tmp_path / "absent") == RunFolder(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_a_run_is_in_the_way_unless_it_may_be_replaced(run):
    with pytest.raises(RunError, match="holds a run already"):
        find_place(run.directory)
    assert find_place(run.directory, overwrite=True) == run


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_run_is_never_replaced(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("42")
    with pytest.raises(RunError, match="holds no run; nothing is written there"):
        find_place(tmp_path, overwrite=overwrite)
    with pytest.raises(RunError, match="is a file"):
        find_place(tmp_path / "thesis.tex", overwrite=overwrite)


def test_starting_removes_what_an_earlier_run_left_but_its_prepared_data(run, config, tmp_path):
    (run.checkpoints / "step-0000000001").mkdir(parents=True)
    run.log.write_text("{}\n")
    run.prepared.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    (run.directory / "link").symlink_to(outside)
    other = config.model_copy(update={"name": "other"})
    start_run(run, other)
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "data.json", "prepared"]
    assert run.config() == other
    assert (outside / "kept").exists()


def test_a_run_stays_a_run_while_it_is_replaced(run, config, monkeypatch):
    run.log.write_text("")
    monkeypatch.setattr("easyrec.run.resolved_yaml", lambda config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start_run(run, config)
    assert run.config() == config


def test_abandoning_removes_only_what_did_not_become_a_run(run, tmp_path):
    run.prepared.mkdir()
    abandon(run)
    assert run.prepared.is_dir()

    half = RunFolder(tmp_path / "half")
    abandon(half)
    half.prepared.mkdir(parents=True)
    (half.prepared / "table.parquet").write_text("")
    abandon(half)
    assert not half.directory.exists()

    shared = RunFolder(tmp_path / "shared")
    shared.prepared.mkdir(parents=True)
    (shared.directory / "notes.txt").write_text("")
    abandon(shared)
    assert [path.name for path in shared.directory.iterdir()] == ["notes.txt"]


def test_options_that_differ_are_named_with_both_values(run):
    other = parse_config(
        {**CONFIG, "features": {"x": "number", "z": "id"}, "training": {"epochs": 3}, "model": {"type": "fm"}}
    )
    with pytest.raises(ConfigError) as caught:
        open_run(run.directory, other)
    text = str(caught.value)
    assert "training.epochs: 1 there, 3 here" in text
    assert 'model.type: "wide_and_deep" there, "fm" here' in text
    assert "model.hidden_units: [4] there, nothing here" in text
    assert "features.y" in text
    assert "features.z: nothing there" in text
    assert "features.x" not in text


def test_long_lists_of_differences_are_cut(run):
    features = {f"feature_{number}": "number" for number in range(40)}
    with pytest.raises(ConfigError) as caught:
        open_run(run.directory, parse_config({**CONFIG, "features": features}))
    assert len(str(caught.value).splitlines()) < 20


def test_what_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(RunError, match="is not a run"):
        open_run(tmp_path)


def test_the_log_is_read_without_its_half_written_end(run):
    run.log.write_text('{"event": "start", "step": 0}\n{"event": "tra')
    assert run.logged() == [{"event": "start", "step": 0}]
    run.summary_path.write_text(json.dumps({"metrics": {}}))
    assert run.summary() == {"metrics": {}}


def test_changed_data_are_named(tmp_path, config):
    place = find_place(tmp_path / "run")
    start_run(place, config, {"train": "a", "eval": "b"})
    assert changed_data(place, {"train": "a", "eval": "b"}) == []
    assert changed_data(place, {"train": "c", "eval": "b"}) == ["train"]
    assert changed_data(place, {"train": "a"}) == ["eval"]
    place.data_path.unlink()  # as runs of earlier versions are
    assert changed_data(place, {"train": "c"}) == []
