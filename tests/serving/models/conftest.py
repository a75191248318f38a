"""Bundles of the tiny pipeline, one for each model, shared by all tests here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from easyrec.export.litert.engine import available
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


def _exported(folder: Path, model: dict[str, Any], every: bool, **changes: Any) -> Any:
    """A model of the tiny pipeline, exported for both runtimes where this machine has them."""
    trained = tiny.make_trained(model, every=every)
    config = trained.config.model_copy(
        update={"export": trained.config.export.model_copy(update={"litert": available()})}
    )
    tiny.make_bundle(tiny.Trained(config, trained.encoder, trained.network), folder / "bundle", **changes)
    return tiny.Exported(trained, folder, tiny.load(folder))


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A DeepFM with all features."""
    return _exported(tmp_path_factory.mktemp("films"), {"type": "deepfm", "hidden_units": [8]}, every=True)


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A two-tower model."""
    model = {"type": "two_tower", "hidden_units": [8], "output_dim": 3}
    return _exported(tmp_path_factory.mktemp("towers"), model, every=False)


@pytest.fixture(params=["tensorflow", "litert"])
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime."""
    if request.param == "litert" and not available():
        pytest.skip("it comes with the extra `litert`")
    return str(request.param)


@pytest.fixture
def served(films: Any, runtime: Any) -> ServedModel:
    """The DeepFM, served; each test may change its items."""
    return load_served_model(films.folder, runtime)


@pytest.fixture
def towers_served(towers: Any, runtime: Any) -> ServedModel:
    """The two-tower model, served."""
    return load_served_model(towers.folder, runtime)


@pytest.fixture(scope="session")
def no_items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The DeepFM without a catalogue."""
    folder = tmp_path_factory.mktemp("no_items")
    _exported(folder, {"type": "deepfm", "hidden_units": [8]}, every=True, items=None, users=None)
    return folder


@pytest.fixture(scope="session")
def tables() -> Any:
    """Rows, catalogue and users of the tiny pipeline."""
    return tiny.Tables(tiny.raw_rows(), tiny.item_table(), tiny.user_table())
