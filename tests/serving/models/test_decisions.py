"""What one process is told about models, all that share a folder of data do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from easyrec.errors import BundleError
from serving.models.decisions import Decisions
from serving.models.hub import ModelHub


def fake(path: Path) -> Any:
    """A model whose name and version are in its path."""
    return SimpleNamespace(name=path.parent.name, version=path.name, folder=path, runtime="none")


@dataclass
class Process:
    """A hub with its decisions, and what is tried beside."""

    file: Path
    hub: ModelHub = field(default_factory=lambda: ModelHub(fake))
    beside: dict[str, tuple[str, float]] = field(default_factory=dict)
    decisions: Decisions = field(init=False)

    def __post_init__(self) -> None:
        self.decisions = Decisions(self.file, self.hub, self.try_beside)

    def try_beside(self, name: str, version: str, percent: float) -> None:
        if version not in [model.version for model in self.hub.loaded(name)]:
            raise BundleError("not loaded")
        self.beside[name] = (version, percent)

    def active(self, name: str = "films") -> str:
        return self.hub.active(name).version


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Process]:
    def begin(*versions: str) -> Process:
        one = Process(tmp_path / "models.json")
        for version in versions:
            one.hub.load_now(Path("films") / version)
        return one

    return begin


def test_what_one_activates_all_do(process: Callable[..., Process]) -> None:
    first, second = process("v1", "v2"), process("v1", "v2")
    assert (first.active(), second.active()) == ("v2", "v2")
    first.decisions.activate("films", "v1")
    assert (first.active(), second.active()) == ("v1", "v2")
    second.decisions.follow()
    assert second.active() == "v1"
    second.decisions.rollback("films")
    first.decisions.follow()
    assert (first.active(), second.active()) == ("v2", "v2")


def test_a_process_that_starts_later_knows_it(process: Callable[..., Process]) -> None:
    process("v1", "v2").decisions.activate("films", "v1")
    late = process("v1", "v2")
    late.decisions.follow()
    assert late.active() == "v1"


def test_shadows_are_shared_and_ended_everywhere(process: Callable[..., Process]) -> None:
    first, second = process("v1", "v2"), process("v1", "v2")
    first.decisions.shadow("films", "v1", 20.0)
    second.decisions.follow()
    assert second.beside == {"films": ("v1", 20.0)}
    second.decisions.shadow("films", "v1", 0.0)
    first.decisions.follow()
    assert first.beside == {"films": ("v1", 0.0)}


def test_a_decision_is_followed_once(process: Callable[..., Process]) -> None:
    """A bundle that came later, from a watched folder, stays."""
    first, second = process("v1", "v2"), process("v1", "v2")
    first.decisions.activate("films", "v1")
    second.decisions.follow()
    second.hub.load_now(Path("films/v3"))
    first.decisions.shadow("films", "v1", 10.0)  # the file changes, but not what was decided about v1
    second.decisions.follow()
    assert second.active() == "v3"
    first.decisions.activate("films", "v1")  # the same again is a decision
    second.decisions.follow()
    assert second.active() == "v1"


def test_a_version_that_is_not_loaded_here_is_waited_for(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = process("v1", "v2"), process("v1")
    first.decisions.activate("films", "v1")
    first.decisions.activate("films", "v2")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            second.decisions.follow()
    assert [record.getMessage() for record in caplog.records] == [
        "another process has chosen version v2 of the model films, not loaded here yet"
    ]
    second.hub.load_now(Path("films/v2"), activate=False)
    second.decisions.follow()
    assert second.active() == "v2"


def test_what_cannot_be_done_is_no_decision(process: Callable[..., Process]) -> None:
    one = process("v1")
    for wrong in (
        lambda: one.decisions.activate("films", "v9"),
        lambda: one.decisions.rollback("films"),
        lambda: one.decisions.shadow("films", "v9", 5.0),
    ):
        with pytest.raises(BundleError):
            wrong()
    assert not one.file.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"active": 3}', '{"active": {"films": 3}}', '{"active": {"films": {}}}']
)
def test_a_damaged_file_stops_nothing(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture, text: str
) -> None:
    one = process("v1", "v2")
    one.file.write_text(text)
    for _ in range(3):
        one.decisions.follow()
    assert one.active() == "v2"
    assert len(caplog.records) == 1
    assert "models.json" in caplog.records[0].getMessage()
    one.decisions.activate("films", "v1")
    assert json.loads(one.file.read_text())["active"]["films"]["version"] == "v1"
