"""Small tables, and a pipeline around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.data.bound import BoundDataset
from easyrec.data.dataset import open_dataset


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes columns as a Parquet file in the test's folder; returns its path."""

    def writer(columns: dict[str, Any] | pa.Table, name: str = "train.parquet", **options: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
        return str(path)

    return writer


def _pipeline(data: dict[str, Any], features: dict[str, Any] | None = None, **parts: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "data": data,
            "features": features or {"user": {"type": "id"}, "item": {"type": "id"}},
            "model": "logistic_regression",
            "tasks": {"label": {"type": "binary"}},
            **parts,
        }
    )


@pytest.fixture
def pipeline() -> Callable[..., PipelineConfig]:
    """Makes a configuration around its `data` part; features and tasks have simple defaults."""
    return _pipeline


@pytest.fixture
def bind() -> Callable[..., BoundDataset]:
    """Opens and binds the data of a configuration; takes the arguments of `pipeline`, and `cache`."""

    def binder(data: dict[str, Any], *args: Any, cache: Path | None = None, **parts: Any) -> BoundDataset:
        config = _pipeline(data, *args, **parts)
        dataset = open_dataset(config, cache)
        return dataset.bind(resolve(config, dataset.columns))

    return binder
