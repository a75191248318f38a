"""Versions come and go while requests are answered; what is not verified never serves."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easyrec.errors import BundleError, SchemaError
from easyrec.export.manifest import read_manifest, write_manifest
from serving.models.decisions import Activation, Decided, Decisions
from serving.models.hub import ModelHub
from serving.models.served import ServedModel, load_served_model
from serving.models.shadow import ShadowLog, ShadowRecord
from serving.models.watch import FolderWatcher


def version(films: Any, folder: Path, name: str, created: str = "2026-01-01T00:00:00+00:00") -> Path:
    """A copy of the bundle under another version."""
    shutil.copytree(films.bundle.folder, folder)
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.model_copy(update={"version": name, "created": created}))
    return folder


@pytest.fixture(scope="module")
def folders(films: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four versions."""
    root = tmp_path_factory.mktemp("versions")
    return [version(films, root / name, name) for name in ("v1", "v2", "v3", "v4")]


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    hub = ModelHub()
    yield hub
    hub.close()


def states(hub: ModelHub) -> dict[str, str]:
    return {info.version: info.state for info in hub.versions()}


def test_versions_are_loaded_activated_and_rolled_back(hub: ModelHub, folders: list[Path]) -> None:
    with pytest.raises(BundleError, match="no model 'films'"):
        hub.active("films")
    first = hub.load_now(folders[0])
    assert hub.active("films") is first
    second = hub.load(folders[1], activate=False).result()
    assert states(hub) == {"v1": "active", "v2": "ready"}
    assert hub.loaded("films") == [first, second]
    with pytest.raises(BundleError, match="'films' has no previous version"):
        hub.rollback("films")
    with pytest.raises(BundleError, match=r"version 'v22' .*loaded are v1, v2\. Did you mean v2|'v2'"):
        hub.activate("films", "v22")
    assert hub.activate("films", "v2") is second
    assert states(hub) == {"v1": "previous", "v2": "active"}
    assert hub.rollback("films") is first
    assert hub.rollback("films") is second
    hub.load_now(folders[2])
    assert states(hub) == {"v2": "previous", "v3": "active"}
    assert hub.names() == ["films"]
    with pytest.raises(BundleError, match=r"no model 'film'\. Did you mean 'films'"):
        hub.active("film")


def test_a_damaged_bundle_never_serves(hub: ModelHub, folders: list[Path], tmp_path: Path) -> None:
    active = hub.load_now(folders[0])
    damaged = shutil.copytree(folders[1], tmp_path / "damaged")
    (damaged / "features" / "features.json").write_text("{}")
    with pytest.raises(BundleError, match=r"features/features\.json"):
        hub.load(damaged).result()
    assert hub.active("films") is active
    (failed,) = [info for info in hub.versions() if info.state == "failed"]
    assert failed.path == damaged
    assert "features.json" in failed.error
    shutil.rmtree(damaged)
    shutil.copytree(folders[1], damaged)
    assert hub.load_now(damaged).version == "v2"
    assert "failed" not in states(hub).values()


def test_other_stored_items_than_the_model_makes_are_refused(folders: list[Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders[0], tmp_path / "bundle")
    path = folder / "candidates" / "encoded" / "item_ids.npy"
    np.save(path, np.load(path) + 1)
    write_manifest(folder, read_manifest(folder))
    with pytest.raises(BundleError, match="stored items and the same items encoded now differ in 'ids'"):
        load_served_model(folder)


def test_a_listener_comes_before_the_swap_and_may_stop_it(hub: ModelHub, folders: list[Path]) -> None:
    seen: list[tuple[str, str, str | None]] = []

    def listener(name: str, model: ServedModel) -> None:
        active = hub.active(name).version if hub.names() else None
        seen.append((name, model.version, active))
        if model.version == "v3":
            raise SchemaError("the items do not fit")
        model.put_items({"new": {"title": "New"}})

    hub.add_listener(listener)
    hub.load_now(folders[0])
    hub.load_now(folders[1])
    assert seen == [("films", "v1", None), ("films", "v2", "v1")]
    assert hub.active("films").catalogue.rows(["new"]).tolist() == [9]
    with pytest.raises(SchemaError, match="do not fit"):
        hub.load_now(folders[2])
    assert hub.active("films").version == "v2"
    assert "v3" not in [model.version for model in hub.loaded("films")]
    assert [info.error for info in hub.versions() if info.state == "failed"] == ["the items do not fit"]


def test_requests_go_on_during_swaps(hub: ModelHub, folders: list[Path]) -> None:
    hub.load_now(folders[0])
    user = {"user_id": 103, "recent": ["m1", "m2"]}
    expected = hub.active("films").score(hub.active("films").user(user), np.arange(9))["liked"]
    stop, answered, problems = threading.Event(), [0], []

    def ask() -> None:
        while not stop.is_set():
            try:
                model = hub.active("films")
                scores = model.score(model.user(user), np.arange(9))["liked"]
                np.testing.assert_allclose(scores, expected, atol=1e-6)
                answered[0] += 1
            except Exception as problem:  # noqa: BLE001 whatever it is, it failed a request
                problems.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for folder in folders[1:3]:
        hub.load(folder).result()
    hub.rollback("films")
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert answered[0] > 3
    assert hub.active("films").version == "v2"


def test_a_folder_is_watched(hub: ModelHub, films: Any, folders: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "models"
    hub.load_now(shutil.copytree(folders[0], root / "1"))
    watcher = FolderWatcher(hub, [root], interval=3600)
    watcher.start()
    assert watcher.look() == []
    shutil.copytree(folders[1], root / "2", ignore=shutil.ignore_patterns("features"))
    assert watcher.look() == []  # it may still be being copied
    shutil.copytree(folders[1] / "features", root / "2" / "features")
    assert watcher.look() == []
    (loading,) = watcher.look()
    assert loading.result().version == "v2"
    assert hub.active("films").version == "v2"
    assert watcher.look() == []
    hub.rollback("films")
    assert watcher.look() == []
    assert hub.active("films").version == "v1"
    shutil.copytree(folders[2], root / "3")
    (root / "3" / "config.yaml").write_text("name: other\n")
    assert watcher.look() == []
    (refused,) = watcher.look()
    with pytest.raises(BundleError, match=r"config\.yaml"):
        refused.result()
    assert watcher.look() == []
    shutil.copy(folders[2] / "config.yaml", root / "3" / "config.yaml")
    watcher.look()
    (again,) = watcher.look()
    assert again.result().version == "v3"
    watcher.stop()


def test_versions_that_appear_together_end_with_the_newest(hub: ModelHub, films: Any, tmp_path: Path) -> None:
    root = tmp_path / "models"
    root.mkdir()
    watcher = FolderWatcher(hub, [root, tmp_path / "absent"])
    watcher.look()
    version(films, root / "a", "newer", "2026-02-02T00:00:00+00:00")
    version(films, root / "b", "older", "2026-01-01T00:00:00+00:00")
    watcher.look()
    loading: list[Future[ServedModel]] = watcher.look()
    assert [future.result().version for future in loading] == ["older", "newer"]
    assert hub.active("films").version == "newer"


def test_a_process_that_starts_serves_what_the_others_serve(films: Any, tmp_path: Path) -> None:
    """Whatever was chosen last: by what came to the folder, or through the API."""
    root, file = tmp_path / "models", tmp_path / "models.json"
    started = version(films, tmp_path / "first", "v1")
    root.mkdir()

    def start() -> tuple[ModelHub, Decisions, FolderWatcher]:
        hub = ModelHub()
        hub.load_now(started)

        def beside(name: str, one: str, percent: float) -> None:
            if one not in [model.version for model in hub.loaded(name)]:
                raise BundleError("not loaded")
            tried.append(one)

        decisions = Decisions(file, hub, beside)
        decisions.follow()
        watcher = FolderWatcher(hub, [root], 3600, decisions.made)
        watcher.start()
        return hub, decisions, watcher

    def serves(expected: str) -> None:
        hub, decisions, watcher = start()
        watcher.stop()
        hub._loader.submit(int).result()  # after what is being loaded
        decisions.follow()
        hub.close()
        assert hub.active("films").version == expected

    tried: list[str] = []
    serves("v1")
    version(films, root / "v0", "v0", "2025-01-01T00:00:00+00:00")
    serves("v1")
    version(films, root / "v2", "v2", "2026-02-02T00:00:00+00:00")
    version(films, root / "v3", "v3", "2026-03-03T00:00:00+00:00")
    other = version(films, root / "other", "v9", "2027-01-01T00:00:00+00:00")
    write_manifest(other, read_manifest(other).model_copy(update={"name": "books"}))
    serves("v3")
    hub, decisions, watcher = start()
    watcher.stop()
    hub._loader.submit(int).result()
    hub.load_now(root / "v2", activate=False)
    decisions.activate("films", "v2")
    decisions.shadow("films", "v3", 10)
    hub.close()
    tried.clear()
    serves("v2")
    assert tried == ["v3"]
    hub, _, watcher = start()
    watcher.stop()
    hub._loader.submit(int).result()
    choice = Activation(version="v0", number=9, at=time.time())
    file.write_text(Decided(active={"films": choice}).model_dump_json())
    [fetched] = watcher.fetch()
    assert fetched.result().version == "v0"
    assert hub.active("films").version == "v2", "choosing it is not the watcher's business"
    assert watcher.fetch() == []
    hub.close()
    file.write_text(Decided(active={"films": choice.model_copy(update={"at": 0.0})}).model_dump_json())
    serves("v3")  # all of them came after that was chosen
    file.write_text(Decided(active={"films": choice}).model_dump_json())
    version(films, root / "v4", "v4", "2025-06-06T00:00:00+00:00")
    serves("v4")


def test_a_shadow_scores_a_share_and_is_only_logged(
    hub: ModelHub, folders: list[Path], tmp_path: Path
) -> None:
    hub.load_now(folders[0])
    hub.load_now(folders[1], activate=False)
    with pytest.raises(BundleError, match="percent must be above 0"):
        hub.set_shadow("films", "v2", 0, print)
    log = ShadowLog(tmp_path / "logs" / "shadow.jsonl")
    shadow = hub.set_shadow("films", "v2", 25, log)
    assert hub.shadow("films") is shadow
    requests = [f"r{number}" for number in range(2000)]
    taken = [request for request in requests if shadow.sampled(request)]
    assert 400 < len(taken) < 600
    hub.loaded("films")[1].put_items({"only there": {}})
    asked = taken[:3]
    for request in asked:
        assert shadow.offer(request, {"user_id": 103}, ["m1", "unheard of", "m3", "only there"])
    assert not any(shadow.offer(request, {}, []) for request in set(requests[:50]) - set(taken))
    hub.load_now(folders[2])
    assert "v2" in states(hub)  # a shadow is kept although it is neither active nor previous
    hub.clear_shadow("films")
    assert hub.shadow("films") is None
    log.close()
    records = [json.loads(line) for line in (tmp_path / "logs" / "shadow.jsonl").read_text().splitlines()]
    assert [record["request_id"] for record in records] == asked
    assert records[0]["shadow"] == "v2"
    assert records[0]["items"] == ["m1", "m3"]
    np.testing.assert_allclose(records[0]["scores"]["liked"], records[0]["shadow_scores"]["liked"])
    assert shadow.counts.scored == 3
    assert shadow.counts.largest_difference["liked"] < 1e-6
    assert not shadow.offer(asked[0], {}, ["m1"])


def test_a_slow_or_failing_shadow_is_counted(hub: ModelHub, folders: list[Path]) -> None:
    hub.load_now(folders[0])
    go = threading.Event()
    written: list[ShadowRecord] = []

    def write(record: ShadowRecord) -> None:
        go.wait()
        if record.request_id == "r1":
            raise OSError("disk full")
        written.append(replace(record))

    shadow = hub.set_shadow("films", "v1", 100, write)
    taken = [shadow.offer(f"r{number}", {}, ["m1"]) for number in range(80)]
    assert taken.count(True) == 64
    assert shadow.offer("bad", {"user_id": "no number"}, ["m1"]) is False
    go.set()
    hub.clear_shadow("films")
    counts = shadow.counts
    assert (counts.scored, counts.failed, counts.dropped) == (63, 1, 17)
    assert len(written) == 63
