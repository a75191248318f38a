"""`easyrec export`, after a training that was real but short."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.cli.main import run

CONFIG = """
name: tiny
data:
  train: {train}
  keys: {{user: user, item: item, time: time}}
  split: {{type: time, fraction: 0.2}}
features:
  user: id
  item: id
  recent: {{type: sequence, of: item, max_length: 5}}
model: {{type: deepfm, hidden_units: [4]}}
embedding: {{dim: 4}}
tasks: {{liked: {{type: binary}}}}
training: {{batch_size: 64, jit_compile: false}}
evaluation: {{resamples: 0}}
output: {output}
"""


@pytest.mark.integration
def test_exports_the_bundle_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    users, items = random.integers(0, 20, 400), random.integers(0, 15, 400)
    table = {"user": users, "item": items, "time": np.arange(400), "liked": (users + items) % 2}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG.format(train=tmp_path / "train.parquet", output=tmp_path / "runs"))
    assert run(["train", str(config)]) == 0, capsys.readouterr().err
    folder = tmp_path / "runs" / "tiny"
    shutil.rmtree(folder / "bundle")
    assert run(["recommend", str(folder), "--user", "3"]) == 2
    assert f"has no bundle yet; make one with `easyrec export {folder}`" in capsys.readouterr().err

    assert run(["export", str(folder), "--checkpoint", "last"]) == 0
    assert capsys.readouterr().out.startswith(f"bundle  {folder / 'bundle'}  version ")
    assert run(["recommend", str(folder), "--user", "3", "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert run(["export", str(folder), "--checkpoint", "77"]) == 2
    assert "77" in capsys.readouterr().err


def test_a_bundle_is_no_run(films_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(films_bundle)]) == 2
    assert "is not a run" in capsys.readouterr().err
