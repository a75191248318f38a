"""Rules that every module of the packages keeps; each failure names the file and the line."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [name for name in ("easyrec", "evaluation", "serving") if (ROOT / name).is_dir()]
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
MAX_LINES = 400

pytestmark = pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])


def places(path: Path, nodes: list[ast.AST]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}" for node in nodes]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_module_is_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{path.relative_to(ROOT)} has {lines} lines, more than {MAX_LINES}: split it"


def test_module_says_what_it_is_for(path):
    assert ast.get_docstring(tree_of(path)), f"{path.relative_to(ROOT)} has no docstring"


def test_no_text_is_evaluated_as_python(path):
    calls = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("eval", "exec", "compile")
    ]
    assert not places(path, calls)


def test_only_public_tensorflow(path):
    private = re.compile(
        r"tensorflow\.python|tf\.compat\.v1|tensorflow\.compat\.v1|\btf_keras\b|keras\.src\b"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if private.search(line)
    ]
    assert not found


def test_assert_checks_no_input(path):
    # An assert vanishes under `python -O`; bad input needs an error with a message.
    asserts = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]
    assert not places(path, asserts)


def test_broad_except_states_its_reason(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    broad = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
        )
        and "#" not in lines[node.lineno - 1]
    ]
    assert not places(path, broad), "a broad except needs a comment on its line that says why"


def test_first_party_imports_stand_at_the_top(path):
    if path.is_relative_to(ROOT / "easyrec" / "cli"):
        pytest.skip(
            "a command imports what it runs when it runs, so that --help and a bad configuration are fast"
        )
    inside = [
        node
        for function in ast.walk(tree_of(path))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES)
        or (
            isinstance(node, ast.Import) and any(alias.name.split(".")[0] in PACKAGES for alias in node.names)
        )
    ]
    assert not places(path, inside)
