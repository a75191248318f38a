"""What importing a package brings in, as a fresh interpreter sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("tensorflow", "keras")


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    probe = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def packages_below(name: str) -> list[str]:
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / name.replace(".", "/")).rglob("*.py")
    )


@pytest.mark.parametrize("package", ["easyrec.config", "evaluation"])
def test_every_module_imports_without_tensorflow(package):
    code = "\n".join(
        f"import {name}" for name in [*packages_below(package), "easyrec.errors", "easyrec.registry"]
    )
    assert not modules_after(code).intersection(HEAVY)


def test_import_easyrec_is_light():
    # It runs before every `import easyrec.config`, so its public names must be loaded when first used.
    assert not modules_after("import easyrec").intersection(HEAVY)


def test_the_command_line_starts_without_tensorflow():
    # --help and a report on a bad configuration must not wait seconds for TensorFlow.
    assert not modules_after("import easyrec.cli.main").intersection({*HEAVY, "pandas", "matplotlib"})
