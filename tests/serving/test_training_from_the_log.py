"""The log of one model trains the next one: served, compacted, trained, with features and labels in place."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import easyrec
from serving.events.compaction import compact
from serving.events.event import Event
from serving.recommender import Request
from tests.serving.world import NOW, KnownModel, World, item_table


@pytest.mark.slow
def test_the_log_trains_the_next_model(tmp_path):
    world = World(tmp_path / "world")
    world.writer.start()
    for turn in range(80):
        user = str(100 + turn % 20)
        world.now = NOW + turn * 120
        request = Request(user_id=user, n=10, context={"device": "tv" if turn % 3 else "phone"})
        answer = world.recommender.answer(request).payload
        clicks = [
            Event(
                event_id=f"{turn}-{item['item_id']}", type="click", user_id=user, item_id=item["item_id"],
                request_id=answer["request_id"], position=item["position"],
            )
            for item in answer["items"]
            if item["position"] % 3 == 0
        ]  # fmt: skip
        world.writer.write(clicks).result(10)
    world.writer.stop()
    counts = compact(tmp_path / "world" / "events", NOW + 86_400)
    assert counts["impressions"] == 800
    run = easyrec.train(
        {
            "name": "next",
            "data": {
                "train": str(tmp_path / "world" / "events" / "parquet" / "impressions" / "*" / "*.parquet"),
                "split": {"type": "random"},
                "keys": {"user": "user_id", "item": "item_id", "time": "time"},
            },
            "features": {
                "user_id": "id",
                "item_id": "id",
                "device": "id",
                "city": "id",
                "age": {"type": "number"},
                "position": {"type": "number", "side": "context"},
            },
            "model": {"type": "deepfm", "hidden_units": [8]},
            "tasks": {"click": {"type": "binary", "label": "click > 0"}},
            "training": {"epochs": 12, "batch_size": 32, "jit_compile": False},
            "evaluation": {"resamples": 0},
            "output": str(tmp_path / "runs"),
        }
    )
    assert run.metrics["click/auc"] > 0.9, "every third position was clicked, and the position is a feature"


def test_features_of_items_are_logged_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(KnownModel, "item_columns", ["item_id", "genres", "year"])
    world = World(tmp_path / "world")
    world.recommender.item_features = True
    world.writer.start()
    answer = world.recommender.answer(Request(user_id="100", n=5)).payload
    world.model.put_items({int(answer["items"][0]["item_id"]): {"genres": "changed since", "year": 3000}})
    world.writer.stop()
    assert compact(tmp_path / "world" / "events", NOW + 86_400)["impressions"] == 5
    (path,) = (tmp_path / "world").rglob("impressions/*/*.parquet")
    rows = pq.ParquetFile(path).read().to_pylist()
    items = {row["item_id"]: row for row in item_table().to_pylist()}
    for row in rows:
        item = items[int(row["item_id"])]
        assert (row["genres"], row["year"]) == (item["genres"], item["year"])
