"""Bundles of the tiny pipeline, one for each model, shared by all tests here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from serving.models.served import ServedModel, load_served_model


def _tiny() -> ModuleType:
    """The tiny pipeline that tests of the export use."""
    path = Path(__file__).parents[2] / "easyrec" / "export" / "conftest.py"
    spec = importlib.util.spec_from_file_location("tiny_export", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_export"] = module
    spec.loader.exec_module(module)
    return module


tiny = _tiny()


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A DeepFM with all features, exported."""
    trained = tiny.make_trained({"type": "deepfm", "hidden_units": [8]}, every=True)
    folder = tmp_path_factory.mktemp("films")
    tiny.make_bundle(trained, folder / "bundle")
    return tiny.Exported(trained, folder, tiny.load(folder))


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A two-tower model, exported."""
    trained = tiny.make_trained({"type": "two_tower", "hidden_units": [8], "output_dim": 3})
    folder = tmp_path_factory.mktemp("towers")
    tiny.make_bundle(trained, folder / "bundle")
    return tiny.Exported(trained, folder, tiny.load(folder))


@pytest.fixture
def served(films: Any) -> ServedModel:
    """The DeepFM, served; each test may change its items."""
    return load_served_model(films.folder)


@pytest.fixture
def towers_served(towers: Any) -> ServedModel:
    """The two-tower model, served."""
    return load_served_model(towers.folder)
