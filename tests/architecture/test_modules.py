"""Rules that every module of the packages keeps and that ruff has no rule for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = [name for name in ("easyrec", "evaluation", "serving") if (ROOT / name).is_dir()]
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
MAX_LINES = 400


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_modules_are_found():
    assert len(MODULES) > 10


def test_no_module_is_longer_than_the_limit():
    lengths = {str(path.relative_to(ROOT)): len(read(path).splitlines()) for path in MODULES}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}, (
        f"split beyond {MAX_LINES}"
    )


def test_only_public_tensorflow_and_keras():
    private = re.compile(r"tensorflow\.python|\bcompat\.v1\b|\btf_keras\b|\bkeras\.src\b")
    assert not [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(read(path).splitlines(), 1)
        if private.search(line)
    ]


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def first_party_imports_inside_functions(path: Path) -> Iterator[str]:
    for function in ast.walk(ast.parse(read(path))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if any(name.split(".")[0] in PACKAGES for name in imported_names(node)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_first_party_imports_stand_at_the_top():
    # Elsewhere they hide cycles. A command is the exception: it imports what it runs when it runs, so that --help
    # and the report on a bad configuration do not wait for TensorFlow.
    commands = {ROOT / "serving" / "cli.py", *(ROOT / "easyrec" / "cli").rglob("*.py")}
    found = [
        place
        for path in MODULES
        if path not in commands
        for place in first_party_imports_inside_functions(path)
    ]
    assert not found
