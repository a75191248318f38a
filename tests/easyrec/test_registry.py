import sys

import pytest

from easyrec.config.base import TypedConfig
from easyrec.errors import ConfigError, EasyRecError, Problem, nearest
from easyrec.registry import Registry, load_plugins


class Shape(TypedConfig):
    """Base."""


class Circle(Shape):
    """A round one.

    More.
    """

    radius: float = 1.0


class Square(Shape):
    """An angular one."""


@pytest.fixture
def shapes():
    registry = Registry("shape", Shape)
    registry.register("circle", Circle, lambda config, factor: config.radius * factor)
    registry.register("square", Square, "collections:OrderedDict")
    return registry


def test_members_are_found_by_name_and_listed_in_order(shapes):
    assert shapes.names() == ["circle", "square"]
    assert [part.name for part in shapes] == ["circle", "square"]
    assert shapes["circle"].summary == "A round one."
    assert "circle" in shapes
    assert "cube" not in shapes


def test_an_unknown_name_gets_the_nearest(shapes):
    with pytest.raises(ConfigError, match=r"unknown shape 'circel'. Did you mean 'circle'\?"):
        shapes["circel"]


def test_build_calls_the_implementation_that_the_type_selects(shapes):
    assert shapes.build(Circle(type="circle", radius=3), 2) == 6


def test_an_implementation_given_as_text_is_imported_when_needed(shapes):
    from collections import OrderedDict

    assert shapes["square"].load() is OrderedDict
    shapes.register("cube", Square, "no.such.module:Thing")
    with pytest.raises(
        ConfigError, match=r"'no.such.module:Thing' of 'cube' cannot be imported: No module named"
    ):
        shapes["cube"].load()
    shapes.register("ball", Square, "collections:Ball")
    with pytest.raises(ConfigError, match="has no attribute 'Ball'"):
        shapes["ball"].load()


def test_a_taken_name_and_a_foreign_class_are_refused(shapes):
    with pytest.raises(
        ConfigError, match=r"the shape 'circle' is registered already, by .*choose another name"
    ):
        shapes.register("circle", Square, None)
    with pytest.raises(ConfigError, match="must derive from Shape"):
        shapes.register("tag", TypedConfig, None)


def test_registering_the_same_again_is_no_error(shapes):
    shapes.register("circle", Circle, None)


def test_a_module_that_fails_is_named():
    with pytest.raises(
        ConfigError, match=r"'no_such_plugin' cannot be imported: ModuleNotFoundError.*PYTHONPATH\?"
    ):
        load_plugins(("no_such_plugin",))


def test_a_module_may_fail_in_any_way(tmp_path, monkeypatch):
    (tmp_path / "failing_plugin.py").write_text("raise ZeroDivisionError('oops')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="ZeroDivisionError: oops"):
        load_plugins(("failing_plugin",))
    assert "failing_plugin" not in sys.modules


def test_errors_know_their_exit_code():
    assert ConfigError("x").exit_code == 2
    assert EasyRecError("x").exit_code == 1


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("a.b", "wrong", "f.yaml", 3), "f.yaml:3  a.b  wrong"),
        (Problem("a.b", "wrong", "--set"), "--set  a.b  wrong"),
        (Problem("a.b", "wrong"), "a.b  wrong"),
        (Problem("", "wrong", "f.yaml"), "f.yaml  wrong"),
    ],
)
def test_a_problem_is_one_line(problem, text):
    assert str(problem) == text


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("Epoch", ["epochs", "seed"], " Did you mean 'epochs'?"),
        ("AUC", ["auc", "mae"], " Did you mean 'auc'?"),
        ("xyz", ["b", "a"], " Known: a, b."),
        ("xyz", [], ""),
        (
            "zzz",
            [f"name{n:02}" for n in range(20)],
            f" Known: {', '.join(f'name{n:02}' for n in range(12))}, ...",
        ),
    ],
)
def test_hints(name, known, hint):
    assert nearest(name, known) == hint
