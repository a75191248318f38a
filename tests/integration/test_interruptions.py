"""Interrupted and resumed, killed, replaced: no run is lost, and a resumed one ends like one that never stopped."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import easyrec
from easyrec.cli.progress import TrainingProgress
from easyrec.data.prepared.shards import open_shards
from easyrec.errors import ConfigError, DataError
from easyrec.preparation import prepare, prepare_shards
from easyrec.run import RunError
from easyrec.training.callbacks import Callback
from easyrec.workflow import fit
from tests.integration.tiny import pipeline
from tests.integration.weights import weights

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]

# Rows are dropped, a split holds some out, negatives add some, dropout draws, and the schedule ends with training: all
# that could make the rest of a run differ from what it would have been.
OPTIONS = {
    "model": {"type": "deepfm", "hidden_units": [8], "dropout": 0.2, "batch_norm": True},
    "training": {
        "batch_size": 128,
        "epochs": 2,
        "jit_compile": False,
        "log_every": 1,
        "optimizer": {"schedule": {"type": "cosine", "warmup_steps": 3}, "embedding": "lazy_adam"},
        "checkpoints": {"every_steps": 4},
    },
}


def hard(data: Path, output: Path) -> dict:
    config = pipeline(data, output, **OPTIONS)
    config["data"] |= {
        "eval": None,
        "split": {"type": "time", "fraction": 0.2},
        "where": "rating != 2",
        "negatives": {"per_row": 2, "where": "rating >= 4"},
    }
    return config


class Announced(Callback):
    """Remembers how many steps are announced."""

    total = None

    def on_train_start(self, total_steps, step):
        self.total = total_steps


@pytest.fixture(scope="module")
def announced() -> Announced:
    return Announced()


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory, announced) -> easyrec.Run:
    """The run that nothing disturbs."""
    return easyrec.train(hard(data, tmp_path_factory.mktemp("whole")), callbacks=[announced])


def test_the_number_of_steps_is_known_beforehand(whole, announced):
    assert announced.total == whole.result.steps


@pytest.fixture
def config_file(data, tmp_path) -> Path:
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(hard(data, tmp_path), sort_keys=False))
    return path


class At(Callback):
    """Does something after a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step(self, info):
        if info.step == self.step:
            self.action()


def test_ctrl_c_leaves_a_checkpoint_and_resume_ends_like_the_undisturbed_run(
    whole, config_file, tmp_path, cli, monkeypatch
):
    stop = whole.result.steps // 2 - 2
    monkeypatch.setattr(
        TrainingProgress, "on_step", At(stop, lambda: signal.raise_signal(signal.SIGINT)).on_step
    )
    stopped = cli("train", config_file)
    assert stopped.code == 130
    assert f"interrupted at step {stop}" in stopped.err
    assert "--resume" in stopped.err
    run = tmp_path / "films"
    assert (run / "checkpoints" / f"step-{stop:010d}" / "manifest.json").is_file()
    assert not (run / "bundle").exists()

    monkeypatch.undo()
    resumed = cli("train", config_file, "--resume")
    assert resumed.code == 0, resumed.err
    assert weights(run) == weights(whole.folder.directory)
    assert easyrec.load(run).manifest.metrics == whole.bundle.manifest.metrics

    finished = fit(prepare(config_file, resume=True), resume=True)  # there is nothing left to do
    assert finished.steps == whole.result.steps
    assert finished.evaluations == []
    assert weights(run) == weights(whole.folder.directory)


def test_a_signal_while_the_last_epoch_is_measured_stops_the_run(data, tmp_path):
    class Interrupt(Callback):
        def on_evaluation_start(self, step):
            signal.raise_signal(signal.SIGINT)

    config = pipeline(data, tmp_path, features={"movie_id": "id"}, model={"type": "logistic_regression"})
    config["training"] |= {"epochs": 1}
    run = easyrec.train(config, callbacks=[Interrupt()])
    assert run.result.reason == "interrupted"
    assert run.metrics == {}
    assert easyrec.train(config, resume=True).result.reason == "completed"


@pytest.mark.slow
def test_kill_9_costs_what_came_after_the_last_checkpoint_and_no_more(whole, data, tmp_path):
    config = hard(data, tmp_path)
    program = f"""
import os, signal, easyrec
from easyrec.training.callbacks import Callback

class Kill(Callback):
    def on_step(self, info):
        if info.step == 10:
            os.kill(os.getpid(), signal.SIGKILL)

easyrec.train({config!r}, callbacks=[Kill()])
"""
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False, env={**os.environ}
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert max(path.name for path in (tmp_path / "films" / "checkpoints").iterdir()) == "step-0000000008"
    shutil.rmtree(tmp_path / "films" / "prepared")  # which may be deleted at any time
    resumed = fit(prepare(config, resume=True), resume=True)
    assert weights(tmp_path / "films") == weights(whole.folder.directory)
    assert resumed.evaluations == whole.result.evaluations


def test_an_error_before_the_first_checkpoint_leaves_a_run_that_starts_anew(whole, data, tmp_path):
    def fail():
        raise KeyboardInterrupt

    config = hard(data, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        easyrec.train(config, callbacks=[At(2, fail)])
    fit(prepare(config, resume=True), resume=True)
    assert weights(tmp_path / "films") == weights(whole.folder.directory)


def test_resume_says_which_data_have_changed(data, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    config = pipeline(copy, tmp_path, features={"movie_id": "id"}, model={"type": "logistic_regression"})
    prepare(config)
    os.utime(copy / "train.parquet", (1, 1))
    resumed = prepare(config, resume=True)
    assert ["the files of the train data have changed" in note for note in resumed.notes] == [True]


def test_another_seed_gives_other_weights(whole, data, tmp_path):
    config = hard(data, tmp_path)
    config["training"] = {**config["training"], "seed": 1, "max_steps": 2}
    fit(prepare(config))
    assert weights(tmp_path / "films") != weights(whole.folder.directory)


# Runs that are there already.


def test_resume_with_another_configuration_is_refused_naming_each_option_that_differs(trained):
    config = trained.folder.config()
    with pytest.raises(ConfigError) as caught:
        easyrec.train(
            config,
            ["training.batch_size=32", "features.year.buckets=7"],
            run=trained.folder.directory,
            resume=True,
        )
    assert "training.batch_size: 64 there, 32 here" in str(caught.value)
    assert "features.year.buckets: 4 there, 7 here" in str(caught.value)
    assert "epochs" not in str(caught.value)


def test_a_run_is_not_replaced_unless_asked_to(trained):
    before = _files(trained.folder.directory)
    with pytest.raises(RunError, match=r"holds a run already.*--resume.*--overwrite"):
        easyrec.train(trained.folder.config())
    assert _files(trained.folder.directory) == before


@pytest.fixture
def old_run(data, tmp_path) -> easyrec.Run:
    config = pipeline(data, tmp_path, features={"movie_id": "id"}, model={"type": "logistic_regression"})
    config["training"] |= {"max_steps": 1}
    return easyrec.train(config)


def test_overwrite_replaces_a_run_only_when_its_successor_is_prepared(old_run, data, tmp_path, cli):
    config, run = old_run.folder.config(), old_run.folder.directory
    before = _files(run)
    for overrides, kind in (
        (["model.type=deepfn"], ConfigError),
        (["features.colour.type=id"], ConfigError),
        (["data.train=nowhere.parquet"], DataError),
        (["tasks.liked.label=rating >= 0"], DataError),
        (["data.where=rating > 9"], DataError),
        (["training.warm_start=nowhere"], easyrec.EasyRecError),
        (["training.checkpoints.metric=liked/acu"], ConfigError),
    ):
        with pytest.raises(kind):
            easyrec.train(config, overrides, overwrite=True)
        assert _files(run) == before, overrides
    assert easyrec.load(run).manifest == old_run.bundle.manifest

    new = easyrec.train(config, ["training.seed=5", "export.users=false"], overwrite=True)
    assert new.folder.config().training.seed == 5
    assert new.bundle.users is None
    assert len(list(new.folder.checkpoints.iterdir())) == 1


def test_preparing_in_vain_leaves_nothing_behind(data, tmp_path):
    config = pipeline(data, tmp_path / "runs", tasks={"liked": {"type": "binary", "label": "rating >= 0"}})
    with pytest.raises(DataError, match="all 1200 training rows have label 1"):
        easyrec.train(config)
    assert not (tmp_path / "runs" / "films").exists()


def test_training_in_vain_leaves_the_shards_that_were_prepared_for_it(data, tmp_path):
    config = pipeline(data, tmp_path)
    [shards, _] = prepare_shards(config)
    with pytest.raises(ConfigError, match="has no such option"):
        easyrec.train(config, ["training.optimizer.dense.options={nope: 1}"])
    assert open_shards(shards.folder) == shards


def test_a_shard_that_is_damaged_can_be_left_out_without_preparing_all_of_them_again(data, tmp_path):
    config = pipeline(data, tmp_path)
    options = [
        "training.shards={path: SHARDS, local: true, split_batches: 2}".replace("SHARDS", str(tmp_path / "s"))
    ]
    [shards, _] = prepare_shards(config, options, run=tmp_path / "preparing")
    path = Path(shards.path(shards.splits[1]))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{path.name}: the shard is damaged or missing.*`data.on_error: skip`"
    ):
        easyrec.train(config, options, run=tmp_path / "first")
    run = easyrec.train(config, [*options, "data.on_error=skip"], run=tmp_path / "second")
    assert path.read_bytes() == content
    assert open_shards(shards.folder) == shards
    assert run.result.examples == 2 * (shards.rows - shards.splits[1].rows)


def test_a_folder_of_something_else_is_left_alone(data, tmp_path, refused):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "holiday.jpg").write_bytes(b"sun")
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(pipeline(data, tmp_path)))
    for more in ([], ["--overwrite"], ["--resume"]):
        assert "is not empty and holds no run" in refused("train", path, *more)
    assert "is a file, not a folder" in refused("train", path, "--run", path)
    assert [file.name for file in (tmp_path / "films").iterdir()] == ["holiday.jpg"]


def _files(folder: Path) -> dict[str, bytes]:
    """All files of a run but those of its cache."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "prepared" not in path.parts
    }
