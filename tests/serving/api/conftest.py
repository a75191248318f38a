"""The whole application over a model whose scores are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import serving.service
from serving.app import create_app
from serving.settings import load_settings
from tests.serving.client import Client
from tests.serving.world import KnownModel


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Starts applications with settings of their own; models are named by their folders."""

    def load(path: Path, **_: Any) -> KnownModel:
        name, _, version = path.name.partition("@")
        return KnownModel(tmp_path / path.name, name, version or "1", vectors=name == "towers")

    monkeypatch.setattr(serving.service, "load_served_model", load)
    monkeypatch.setattr(serving.service, "find_bundle", lambda path: path)
    with ExitStack() as stack:

        def start(**settings: Any) -> Client:
            given = {"models": ["films"], "data": str(tmp_path / "data"), **settings}
            return stack.enter_context(Client(create_app(load_settings(given=given, environment={}))))

        yield start


@pytest.fixture
def client(start: Callable[..., Client]) -> Client:
    """An application with default settings."""
    return start()
