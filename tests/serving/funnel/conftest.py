"""Worlds of known films."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.funnel.scene import SceneConfig
from tests.serving.world import World


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    """Makes a world with one scene, `home`, from its configuration."""

    def make(scene: dict[str, Any] | None = None, **options: Any) -> World:
        scenes = {} if scene is None else {"home": SceneConfig.model_validate(scene)}
        return World(tmp_path, scenes, **options)

    return make
