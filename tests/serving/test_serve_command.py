"""`easyrec serve` as a new user runs it: real bundles, a real process, and mistakes that are explained."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from easyrec.cli.main import run
from easyrec.export.write import write_bundle
from tests.easyrec.export.conftest import interactions, item_table, make_trained, raw_rows, user_table
from tests.serving.test_process import Server

SCENE = """\
scenes:
  home:
    sources:
      towers: {type: two_tower}
      popular: {type: popularity}
    filters: {seen: {type: seen}}
    reranking: {variety: {type: mmr}}
    properties: [title]
"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> Path:
    """A DeepFM and a two-tower model with random weights."""
    folder = tmp_path_factory.mktemp("runs")
    models: dict[str, Any] = {
        "films": {"type": "deepfm", "hidden_units": [8]},
        "towers": {"type": "two_tower", "hidden_units": [8], "output_dim": 3},
    }
    for name, model in models.items():
        trained = make_trained(model)
        write_bundle(
            folder / name / "bundle",
            config=trained.config.model_copy(update={"name": name}),
            encoder=trained.encoder,
            network=trained.network,
            examples=raw_rows(),
            items=item_table(),
            users=user_table(),
            interactions=[interactions()],
            version="1",
        )
    return folder


def command(*arguments: object) -> list[str]:
    code = "import sys; from easyrec.cli.main import run; sys.exit(run(sys.argv[1:]))"
    return [sys.executable, "-c", code, "serve", *map(str, arguments)]


def test_workers_that_cannot_start_end_the_service(bundles, tmp_path):
    shutil.copytree(bundles / "films", tmp_path / "films")
    damaged = tmp_path / "films" / "bundle" / "config.yaml"
    damaged.write_text(damaged.read_text() + "#")
    arguments = (tmp_path / "films", "--workers", "2", "--port", "0", "--data", tmp_path / "data")
    found = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1
    assert "the service cannot start" in found.stderr
    assert "no worker could start" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path, workers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = (tmp_path / "films", "--port", port, "--workers", workers)
        found = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in found.stderr
    assert "loading" not in found.stderr


@pytest.mark.slow
def test_what_one_worker_was_told_the_others_know(bundles, tmp_path):
    arguments = (bundles / "films", "--workers", "2", "--port", "{port}", "--data", tmp_path / "data")
    server = Server(command(*arguments), {}).start(120)
    try:
        for number in range(40):  # each over a connection of its own, which either worker may take
            user, item = f"new-{number}", f"m{number % 5}"
            event = {"event_id": user, "type": "click", "user_id": user, "item_id": item}
            assert httpx.post(f"{server.url}/v1/events", json=[event], timeout=30).json()["accepted"] == 1
            body = {"user_id": user, "debug": True}
            answer = httpx.post(f"{server.url}/v1/recommend", json=body, timeout=30).json()
            assert answer["debug"]["user"]["recent"] == [item]
        assert "easyrec_requests_total" in httpx.get(f"{server.url}/metrics", timeout=30).text
    finally:
        assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_it_serves_a_ranker_with_a_retriever(bundles, tmp_path):
    (tmp_path / "scenes.yaml").write_text(SCENE)
    server = Server(
        command(bundles / "films", "--retriever", bundles / "towers", "--scene", tmp_path / "scenes.yaml",
                "--port", "{port}", "--data", tmp_path / "data"),
        {},
    ).start(120)  # fmt: skip
    try:
        with httpx.Client(base_url=server.url, timeout=30) as http:
            answer = http.post("/v1/recommend", json={"user_id": 103, "n": 20, "debug": True}).json()
            found = [item["item_id"] for item in answer["items"]]
            assert set(found) == {f"m{n}" for n in range(3, 9)}, "user 103 has seen m0 to m2"
            assert answer["degraded"] == []
            assert answer["items"][0]["properties"]["title"].startswith("Movie")
            assert "towers" in answer["items"][0]["sources"]
            assert answer["debug"]["user"]["columns"]["recent"] == ["m0", "m1", "m2"]

            http.post(
                "/v1/events", json=[{"event_id": "e", "type": "click", "user_id": 103, "item_id": "m7"}]
            )
            answer = http.post("/v1/recommend", json={"user_id": "103", "n": 20, "debug": True}).json()
            assert "m7" not in [item["item_id"] for item in answer["items"]]
            assert answer["debug"]["user"]["columns"]["recent"] == ["m0", "m1", "m2", "m7"]

            put = http.put("/v1/items/new", json={"properties": {"genres": "g1|g2", "title": "New"}})
            assert put.status_code == 200
            answer = http.post("/v1/recommend", json={"user_id": 103, "n": 20}).json()
            assert "new" in [item["item_id"] for item in answer["items"]]

            scores = http.post("/v1/rank", json={"user_id": 101, "item_ids": ["m5", "m6"]}).json()["items"]
            rows = [{**_raw(101), **_raw_item(item["item_id"])} for item in scores]
            predicted = http.post("/v1/models/films:predict", json={"instances": rows}).json()["predictions"]
            assert predicted == pytest.approx([item["score"] for item in scores], abs=1e-5)
    finally:
        code = server.end(signal.SIGTERM)
    assert code in (0, -signal.SIGTERM)
    assert list((tmp_path / "data" / "events" / "closed").glob("*.jsonl"))


def _raw(user: int) -> dict[str, Any]:
    row = next(row for row in user_table().to_pylist() if row["user_id"] == user)
    return {name: row[name] for name in ("user_id", "age", "recent")}


def _raw_item(item: str) -> dict[str, Any]:
    row = next(row for row in item_table().to_pylist() if row["movie_id"] == item)
    return {name: row[name] for name in ("movie_id", "genres")}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 2, "nowhere does not exist"),
        ([], 2, "say what to serve, such as `easyrec serve runs/films`"),
        (["x", "--scene", "absent.yaml"], 2, "no such file: absent.yaml"),
        (["x", "--store", "mysql://x"], 2, "store"),
        (["x", "--runtime", "onnx"], 2, "runtime"),
        (["x", "--port", "99999"], 2, "port"),
    ],
)
def test_mistakes_are_explained(arguments, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["serve", *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_mistakes_that_only_the_bundle_shows(bundles, tmp_path, capsys):
    (tmp_path / "scenes.yaml").write_text(SCENE.replace("[title]", "[title]\n    ranking: {score: likd}"))
    found = ["serve", str(bundles / "films"), "--retriever", str(bundles / "towers")]
    options = ["--data", str(tmp_path / "data"), "--scene", str(tmp_path / "scenes.yaml")]
    assert run([*found, *options]) == 2
    assert "scenes.home.ranking: ranking.score: the model has no task 'likd'. Did you mean 'liked'?" in (
        capsys.readouterr().err
    )
    assert run([*found, str(bundles / "films"), *options]) == 2
    assert "are both named 'films'" in capsys.readouterr().err
