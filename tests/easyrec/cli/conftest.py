"""Bundles that commands are tried on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PIPELINE = Path(__file__).resolve().parent.parent / "export" / "conftest.py"


@pytest.fixture(scope="session")
def films_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with the bundle of a tiny pipeline, see `tests/easyrec/export`."""
    specification = importlib.util.spec_from_file_location("tiny_pipeline", PIPELINE)
    assert specification is not None
    assert specification.loader is not None
    pipeline = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = pipeline  # dataclasses look their module up
    specification.loader.exec_module(pipeline)
    folder = tmp_path_factory.mktemp("films")
    pipeline.make_bundle(pipeline.make_trained("fm"), folder / "bundle")
    return folder
