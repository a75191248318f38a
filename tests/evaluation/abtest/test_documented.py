"""The experiments that the documentation shows are valid."""

import re
from pathlib import Path

import pytest
import yaml

from evaluation.abtest.loading import parse_experiments

PAGE = Path(__file__).parents[3] / "docs" / "how_to" / "run_an_experiment.md"
BLOCKS = re.findall(r"^```yml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
BASE = {"version": 1, "layers": {"ranking": {"owns": ["ranking.model"]}}}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_a_valid_file(block):
    parse_experiments({**BASE, **yaml.safe_load(block)})


def test_there_are_blocks():
    assert len(BLOCKS) == 4
