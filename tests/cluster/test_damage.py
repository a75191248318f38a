"""A shard that is damaged on its way to the workers."""

from __future__ import annotations

import pytest

from easyrec.data.prepared.shards import open_shards
from easyrec.errors import DataError
from easyrec.fitting import fit
from easyrec.preparation import prepare_shards
from tests.cluster.conftest import log

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
ONE = "local:workers=1,ps=1"


def damage(prepared, part="train", number=7):
    prepare_shards(prepared.config, run=prepared.run.directory)
    folder = prepared.run.prepared / "shards" / part
    shards = open_shards(str(folder))
    path = folder / shards.splits[number].file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    return path, shards.splits[number]


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_it_is_named_and_left_out_if_asked(mode, make, tmp_path):
    prepared = make(tmp_path, on_error="skip", cluster={"mode": mode, "start_timeout": 120})
    path, split = damage(prepared)
    lines = []
    result = fit(prepared, cluster=ONE, tell=lines.append)
    assert result.reason == "completed"
    more = result.examples - 2 * (2400 - split.rows)
    # In step, a batch before the damaged one has been trained on when the damage comes to light.
    assert more in ([0] if mode == "asynchronous" else [0, 64, 128])
    assert [(line["splits"], line["skipped"]) for line in log(prepared, "epoch")] == [(18, 1), (18, 1)]
    assert {line["split"] for line in log(prepared, "skipped")} == {path.name}
    assert any("left out a damaged shard" in line and path.name in line for line in lines)


def test_it_ends_training_and_is_named(make, tmp_path):
    prepared = make(tmp_path)
    path, _ = damage(prepared)
    with pytest.raises(
        DataError, match=rf"{path.name}: the shard is damaged or missing \(corrupted record at \d+\)"
    ):
        fit(prepared, cluster=ONE)


def test_one_of_held_out_rows_ends_training_and_is_named(make, tmp_path):
    prepared = make(tmp_path, on_error="skip", evaluate_every=10)
    path, _ = damage(prepared, "eval", 0)
    with pytest.raises(
        DataError, match=rf"{path.name}: the shard of held-out rows is damaged or missing \(corrupted"
    ):
        fit(prepared, cluster=ONE)
