"""The shipped configurations are valid, short, and say what they are for."""

import json
from pathlib import Path

import pytest

from easyrec.config.loader import load_config
from easyrec.config.schema import json_schema

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "feature_configs"
CONFIGS = sorted(FOLDER.glob("*.yaml"))


def test_there_are_configurations():
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
class TestConfiguration:
    def test_validates(self, path):
        config = load_config(path, environment={})
        assert config.name.replace("-", "_") == path.stem

    def test_says_what_it_is_for_and_how_to_run_it(self, path):
        comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        assert len(comments) >= 2
        assert any(f"easyrec train feature_configs/{path.name}" in line for line in comments)

    def test_is_written_by_difference(self, path):
        # DeepFM on Criteo's 39 columns takes at most 25 lines; a table without a header needs its columns named.
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert len(lines) <= 25 or "header: false" in text


def test_the_schema_beside_them_is_the_one_the_code_makes():
    stored = json.loads((FOLDER / "schema" / "pipeline.schema.json").read_text(encoding="utf-8"))
    assert stored == json_schema(), "run `make docs`"
