"""The package's metadata, its lock and its code agree."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import easyrec

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", LOCK, flags=re.MULTILINE)
}
EXTRAS = PROJECT["optional-dependencies"]
# Extras in the lock: what users may add, and what the tests need. The lock leaves out what only a benchmark compares,
# and Spark, whose half a gigabyte and Java nobody without a cluster needs.
RUNTIME_EXTRAS = [
    text for name, texts in EXTRAS.items() if name not in ("dev", "benchmark", "spark") for text in texts
]
REQUIREMENTS = [*PROJECT["dependencies"], *RUNTIME_EXTRAS, *EXTRAS["dev"]]
PACKAGES = ["easyrec", "evaluation", "serving"]
# Imported only where present, and never installed with the package: the other side of a benchmark, and Spark.
OPTIONAL_IMPORTS = {"torch", "pyspark"}
# A package that is part of the public interface of another.
COMPANIONS = {"pydantic-core": "pydantic", "starlette": "fastapi"}


def test_version_is_stated_once():
    assert easyrec.__version__ == PROJECT["version"]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_the_lock_pins_what_pyproject_allows(text):
    requirement = Requirement(text)
    pinned = PINS.get(canonicalize_name(requirement.name))
    assert pinned is not None, f"{requirement.name} is not in requirements.lock; run `make lock`"
    assert pinned in requirement.specifier, (
        f"{requirement} does not allow the pinned {pinned}; run `make lock`"
    )


def test_the_lock_names_no_index_path_or_unhashed_package():
    assert not re.search(r"https?://|file:|^-", LOCK, flags=re.MULTILINE)
    unhashed = [
        block.split("==")[0]
        for block in re.split(r"\n(?=\S)", LOCK)
        if "==" in block and "sha256:" not in block
    ]
    assert not unhashed
    assert "torch" not in PINS


@pytest.mark.parametrize("package", PACKAGES)
def test_every_imported_package_is_a_dependency(package):
    allowed = {
        canonicalize_name(Requirement(text).name) for text in [*PROJECT["dependencies"], *RUNTIME_EXTRAS]
    }
    distributions = packages_distributions()
    undeclared = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            for top in {name.split(".")[0] for name in names}:
                if top in {*PACKAGES, *OPTIONAL_IMPORTS} or top in sys.stdlib_module_names:
                    continue
                found = map(canonicalize_name, distributions.get(top, []))
                owners = {COMPANIONS.get(name, name) for name in found}
                if not owners & allowed:
                    undeclared.add(
                        f"{path.relative_to(ROOT)}:{node.lineno} imports {top} (of {sorted(owners) or '?'})"
                    )
    assert not sorted(undeclared), "declare it in pyproject.toml and run `make lock`"


def test_every_dependency_is_used():
    # A dependency that nothing imports costs every user an installation; say why in the table if it stays.
    needed_without_import = {
        "tensorboard": "tf.summary.scalar and TensorBoard's reader come from it",
        "fsspec": "pyarrow and pandas open URLs through it",
        "duckdb": "Ibis runs on it",
    }
    source = "\n".join(
        path.read_text(encoding="utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py")
    )
    imported = set(re.findall(r"^\s*(?:from|import)\s+([A-Za-z0-9_]+)", source, flags=re.MULTILINE))
    imported |= set(
        re.findall(r"import_module\(\"([A-Za-z0-9_]+)", source)
    )  # extras, where they are installed
    provided: dict[str, set[str]] = {}
    for top, owners in packages_distributions().items():
        for owner in owners:
            provided.setdefault(canonicalize_name(owner), set()).add(top)
    declared = [
        canonicalize_name(Requirement(text).name) for text in [*PROJECT["dependencies"], *RUNTIME_EXTRAS]
    ]
    unused = [
        name
        for name in declared
        if name not in needed_without_import and not provided.get(name, set()) & imported
    ]
    assert not unused


def test_the_decision_record_gives_a_reason_for_every_dependency():
    record = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text(encoding="utf-8").lower()
    names = [Requirement(text).name.lower() for text in REQUIREMENTS]
    assert not [name for name in names if f"`{name}`" not in record]


def test_the_wheel_holds_every_file_a_user_needs(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(path.relative_to(ROOT))
        for name in (*PACKAGES, "feature_configs")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert not needed - shipped
    assert not {name.split("/")[0] for name in shipped if ".dist-info/" not in name} - {
        *PACKAGES,
        "feature_configs",
    }
