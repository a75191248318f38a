"""Settings come from a file, the environment and the caller; mistakes are named with file and line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from easyrec.errors import ConfigError
from serving.funnel.stages import FILTERS, SOURCES
from serving.settings import Settings, load_settings
from serving.stores.memory import MemoryStore
from serving.stores.open import open_store
from serving.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "serving.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_later_ones_win(write):
    file = write(
        "models: [a]\nport: 1\nhost: one\nevents: {sync: false, segment_mib: 7}\nworkers: ${COUNT}\n"
    )
    environment = {
        "EASYREC_HOST": "two",
        "EASYREC_EVENTS__SEGMENT_MIB": "8",
        "COUNT": "3",
        "EASYREC_OTHER": "x",
    }
    settings = load_settings(file, {"port": 9}, environment)
    assert (settings.port, settings.host, settings.workers) == (9, "two", 3)
    assert (settings.events.sync, settings.events.segment_mib) == (False, 8)


def test_defaults_need_nothing_but_a_model():
    settings = load_settings(given={"models": ["runs/films"]}, environment={})
    assert settings.models == (Path("runs/films"),)
    assert (settings.host, settings.store, settings.scenes) == ("127.0.0.1", "sqlite", {})


SCENE = """\
models: [runs/films]
scenes:
  home:
    n: 0
    sources:
      towers: {type: two_towr}
      popular: {type: popularity, nn: 3}
    filters:
      old: {type: expression, where: "year >= "}
    reranking:
      slots: {type: slots, sources: [new]}
    mrege: {by: rank}
prot: 8000
"""


def test_all_mistakes_are_told_with_line_and_nearest_name(write):
    with pytest.raises(ConfigError) as caught:
        load_settings(write(SCENE), environment={})
    text = str(caught.value)
    for line, words in (
        (4, "scenes.home.n"),
        (6, "Did you mean 'two_tower'?"),
        (7, "Did you mean 'n'?"),
        (9, "the expression ends"),
        (11, "give either `positions` or `every`"),
        (12, "Did you mean 'merge'?"),
        (13, "Did you mean 'port'?"),
    ):
        assert [one for one in text.splitlines() if f"serving.yaml:{line}" in one or words in one], (
            line,
            words,
            text,
        )
        assert words in text
        assert f"serving.yaml:{line} " in text


def test_mistakes_of_the_environment_are_told_by_name():
    with pytest.raises(ConfigError, match=r"\$EASYREC_PORT.*port.*x"):
        load_settings(given={"models": ["a"]}, environment={"EASYREC_PORT": "x"})
    with pytest.raises(ConfigError, match="store"):
        load_settings(given={"models": ["a"], "store": "postgres://x"}, environment={})
    with pytest.raises(ConfigError, match="models"):
        load_settings(environment={})


def test_likely_mistakes_get_a_better_answer(write):
    with pytest.raises(ConfigError, match=r"serving.yaml:1 .*a scene stands under `scenes:` and its name"):
        load_settings(write("sources: {popular: popularity}\nmodels: [a]\n"), environment={})
    with pytest.raises(ConfigError, match=r"EASYREC_EVNTS__SYNC .*Did you mean 'EASYREC_EVENTS'"):
        load_settings(given={"models": ["a"]}, environment={"EASYREC_EVNTS__SYNC": "false"})


def test_a_scene_without_sources_is_refused(write):
    with pytest.raises(ConfigError, match="a scene needs a source"):
        load_settings(write("models: [a]\nscenes: {home: {sources: {}}}\n"), environment={})


PLUGIN = '''
from typing import Literal
import numpy as np
from serving.funnel.candidates import Found
from serving.funnel.stages import FILTERS, SOURCES, FilterConfig, SourceConfig

class ShelfConfig(SourceConfig):
    """A shelf."""
    type: Literal["my_shelf"] = "my_shelf"
    shelf: int

class Shelf:
    def __init__(self, config, resources):
        self.config = config
    def find(self, query):
        return Found(np.array([self.config.shelf]), np.ones(1, np.float32))

SOURCES.register("my_shelf", ShelfConfig, Shelf)
'''


def test_a_package_of_a_user_adds_a_source(write, tmp_path, monkeypatch):
    (tmp_path / "my_shelf.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    scenes = "scenes: {home: {sources: {mine: {type: my_shelf, shelf: 3}}}}"
    try:
        settings = load_settings(write(f"plugins: [my_shelf]\nmodels: [a]\n{scenes}\n"), environment={})
        assert settings.scenes["home"].sources["mine"].shelf == 3
        wrong = f"plugins: [my_shelf]\nmodels: [a]\n{scenes}\n".replace("shelf: 3", "shelf: x")
        with pytest.raises(ConfigError, match=r"scenes\.home\.sources\.mine\.shelf"):
            load_settings(write(wrong), environment={})
    finally:
        SOURCES.unregister("my_shelf")
        sys.modules.pop("my_shelf", None)
    with pytest.raises(ConfigError, match="nothing_here"):
        load_settings(write("plugins: [nothing_here]\nmodels: [a]\n"), environment={})


def test_settings_survive_json_from_one_process_to_another(write):
    settings = load_settings(
        write("models: [a]\nscenes: {home: {sources: {p: popularity}}}\n"), environment={}
    )
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_the_store_that_is_named_is_opened(tmp_path):
    for name, kind in (("memory", MemoryStore), ("sqlite", SqliteStore)):
        settings = load_settings(
            given={"models": ["a"], "store": name, "data": str(tmp_path)}, environment={}
        )
        store = open_store(settings)
        assert isinstance(store, kind)
        store.close()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "feature_configs" / "serving").glob("*.yaml")), ids=lambda path: path.name
)
def test_shipped_scenes_are_valid_and_say_how_to_use_them(path):
    settings = load_settings(path, {"models": ["runs/films"]}, {})
    assert settings.scenes
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any("easyrec serve" in line and path.name in line for line in comments)


def test_scenes_in_the_documentation_are_valid():
    page = (ROOT / "docs" / "how_to" / "serve_recommendations.md").read_text(encoding="utf-8")
    blocks = page.split("```yml\n")[1:]
    assert blocks
    for block in blocks:
        shown = yaml.safe_load(block.split("```")[0])
        shown.pop("plugins", None)
        given = {"models": ["runs/films"], **shown}
        assert load_settings(given=given, environment={}).models


def test_families_document_themselves():
    for registry in (SOURCES, FILTERS):
        assert all(part.summary for part in registry)
