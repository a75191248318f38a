"""A shard that is damaged on its way to the workers."""

from __future__ import annotations

import pytest

from easyrec.data.prepared.shards import open_shards
from easyrec.errors import DataError
from easyrec.fitting import fit
from easyrec.preparation import prepare_shards
from tests.cluster.conftest import log

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ONE = "local:workers=1,ps=1"


def damage(prepared):
    prepare_shards(prepared.config, run=prepared.run.directory)
    folder = prepared.run.prepared / "shards" / "train"
    shards = open_shards(str(folder))
    path = folder / shards.splits[7].file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    return path, shards.splits[7]


def test_it_is_named_and_left_out_if_asked(make, tmp_path):
    prepared = make(tmp_path, on_error="skip")
    path, split = damage(prepared)
    lines = []
    result = fit(prepared, cluster=ONE, tell=lines.append)
    assert result.reason == "completed"
    assert result.examples == 2 * (2400 - split.rows)
    assert [(line["splits"], line["skipped"]) for line in log(prepared, "epoch")] == [(18, 1), (18, 1)]
    assert {line["split"] for line in log(prepared, "skipped")} == {path.name}
    assert any("left out a damaged shard" in line and path.name in line for line in lines)


def test_it_ends_training_and_is_named(make, tmp_path):
    prepared = make(tmp_path)
    path, _ = damage(prepared)
    with pytest.raises(DataError, match=f"{path.name}: the shard is damaged"):
        fit(prepared, cluster=ONE)
