"""What the documentation says is true: links resolve, configurations validate, generated pages match."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import easyrec
from easyrec.cli.main import own_commands
from easyrec.config.loader import load_config

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "feature_configs").rglob("*.md")]
)
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]

# The smallest pipeline; a fragment shown in the documentation must validate when laid over it.
MINIMAL = {
    "data": {"train": "train.parquet", "keys": {"user": "user_id", "item": "item_id", "time": "time"}},
    "features": {"user_id": "id", "item_id": "id"},
    "model": "deepfm",
    "tasks": {"label": {"type": "binary"}},
}


def code_blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language: line number of the fence, and text."""
    text = page.read_text(encoding="utf-8")
    return [
        (text[: match.start()].count("\n") + 1, match.group("body"))
        for match in re.finditer(
            rf"^(?P<fence>`{{3,}}){language}\n(?P<body>.*?)^(?P=fence)$", text, flags=re.MULTILINE | re.DOTALL
        )
    ]


YAML_BLOCKS = [
    pytest.param(page, body, id=f"{page.relative_to(ROOT)}:{line}")
    for page in PAGES
    for line, body in code_blocks(page, "yaml")
    if "plugins" not in yaml.safe_load(body)  # needs its module; trained below
]


def laid_over(base: Any, fragment: Any) -> Any:
    """`fragment` merged into `base`; a mapping with a `type` replaces what was there."""
    if not isinstance(base, dict) or not isinstance(fragment, dict) or "type" in fragment:
        return fragment
    return {**base, **{key: laid_over(base.get(key), value) for key, value in fragment.items()}}


@pytest.mark.parametrize(("page", "block"), YAML_BLOCKS)
def test_a_configuration_in_the_documentation_validates(page, block, tmp_path):
    shown = yaml.safe_load(block)
    file = tmp_path / "shown.yaml"
    if "include" in shown:  # a shipped configuration, or one that the page shows under its name
        for shipped in (ROOT / "feature_configs").glob("*.yaml"):
            shutil.copy(shipped, tmp_path)
        for _, other in code_blocks(page, "yaml"):
            if name := yaml.safe_load(other).get("name"):
                (tmp_path / f"{name}.yaml").write_text(other, encoding="utf-8")
        file.write_text(block, encoding="utf-8")
    else:
        file.write_text(yaml.safe_dump(laid_over(MINIMAL, shown)), encoding="utf-8")
    load_config(file, environment={})


def test_the_readme_explains_a_configuration_of_at_most_25_lines():
    [(_, block)] = code_blocks(ROOT / "README.md", "yaml")
    assert len(block.splitlines()) <= 25
    assert {"data", "features", "model", "tasks"} <= yaml.safe_load(block).keys()


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as Markdown viewers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_resolve(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_paths_named_in_code_spans_exist(page):
    # `easyrec/workflow.py` in running text sends a reader somewhere; the place must be there.
    named = re.findall(
        r"`((?:easyrec|evaluation|tests|docs|benchmarks|feature_configs)/[\w./-]+)`",
        page.read_text(encoding="utf-8"),
    )
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_commands_exist(page):
    known = {command.name for command in own_commands()}
    text = page.read_text(encoding="utf-8")
    named = re.findall(
        r"`(?:\$ )?easyrec ([a-z]+)\b[^`\n]*`|^ +(?:\$ )?easyrec ([a-z]+)\b", text, re.MULTILINE
    )
    assert not {first or second for first, second in named} - known


def test_the_readme_lists_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {command.name for command in own_commands()} == set(
        re.findall(r"^\| `easyrec ([a-z]+)", text, re.MULTILINE)
    )


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_python_in_the_documentation_uses_what_is_there(page):
    for _, block in code_blocks(page, "python"):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "easyrec"
            ):
                assert node.attr in easyrec.__all__


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_reference", ROOT / "docs" / "generate_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current():
    stale = [
        str(path.relative_to(ROOT))
        for path, text in load_generator().pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `make docs`"


def test_every_configuration_key_is_described():
    page = load_generator().configuration()
    nameless = [line for line in page.splitlines() if re.match(r"\| `(?!type`)\w+` .*\|\s*\|$", line)]
    assert not nameless, "a key of a configuration class has no docstring"


@pytest.mark.slow
def test_the_plugin_that_the_documentation_shows_trains(tmp_path):
    page = ROOT / "docs" / "how_to" / "write_a_plugin.md"
    [(_, module)], [(_, pipeline)] = code_blocks(page, "python"), code_blocks(page, "yaml")
    (tmp_path / "shop_parts.py").write_text(module, encoding="utf-8")
    (tmp_path / "pipeline.yaml").write_text(pipeline, encoding="utf-8")
    random = np.random.default_rng(0)
    price = random.gamma(1.0, 50.0, 2000)
    orders = pa.table(
        {
            "user_id": random.integers(0, 50, 2000),
            "item_id": random.integers(0, 80, 2000),
            "price": pa.array(price, mask=random.random(2000) < 0.1),
            "bought": (random.random(2000) < 1 / (1 + price / 20)).astype(int),
        }
    )
    pq.write_table(orders, tmp_path / "orders.parquet")
    done = subprocess.run(
        [sys.executable, "-c", "from easyrec.cli.main import main; main()", "train", "pipeline.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "runs" / "shop" / "run.json").read_text(encoding="utf-8"))["metrics"]
    assert metrics["bought/auc"] > 0.6
    assert 0 <= metrics["bought/sure_mistakes"] < 0.5
