"""A small configuration that is right, and helpers to break it."""

import copy
from collections.abc import Callable

import pytest

from easyrec.config.loader import load_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import ConfigError

SMALL = {
    "data": {
        "train": "train.parquet",
        "keys": {"user": "user_id", "item": "movie_id", "time": "timestamp"},
        "tables": {"item": "movies.parquet"},
    },
    "features": {
        "user_id": {"type": "id"},
        "movie_id": {"type": "id"},
        "genres": {"type": "tags", "separator": "|"},
        "year": {"type": "number", "buckets": 20},
        "recent": {"type": "sequence", "of": "movie_id", "max_length": 7},
    },
    "model": {"type": "deepfm"},
    "tasks": {"liked": {"type": "binary", "label": "rating >= 4"}},
}


@pytest.fixture
def small() -> dict:
    return copy.deepcopy(SMALL)


@pytest.fixture
def write(tmp_path, monkeypatch) -> Callable[..., str]:
    """Writes a file and gives its name; the working directory is the test's folder."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str | bytes, name: str = "pipeline.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    return write_file


@pytest.fixture
def load(write) -> Callable[..., PipelineConfig]:
    """Writes a configuration and loads it."""

    def load_text(text: str | bytes, *overrides: str, environment: dict | None = None) -> PipelineConfig:
        return load_config(write(text), overrides, environment or {})

    return load_text


@pytest.fixture
def complaints(load) -> Callable[..., list[str]]:
    """Writes a configuration that is wrong, and gives the lines of the report."""

    def complaints_of(text: str | bytes, *overrides: str, environment: dict | None = None) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides, environment=environment)
        return [str(problem) for problem in caught.value.problems]

    return complaints_of
