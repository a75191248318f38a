"""A package from outside adds a model, a feature type and a metric: by an entry point, or named in the configuration.

Each command runs in an interpreter of its own, since what a plug-in registers stays registered.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shop-parts"
version = "1.0"

[project.entry-points."easyrec.plugins"]
shop = "shop_parts.parts"
"""

PARTS = '''\
from typing import ClassVar, Literal

from pydantic import Field

from easyrec.config.features import FEATURES, EmbeddedFeature
from easyrec.config.models import MODELS, ModelConfig
from evaluation.metrics.registry import Metric, register_metric


class PriceBand(EmbeddedFeature):
    """A price as one of a few bands."""

    accepts: ClassVar = ("int", "float")
    type: Literal["price_band"] = "price_band"
    bands: int = Field(12, ge=2)
    """How many bands there are."""


class Shelf(ModelConfig):
    """A model that knows shelves."""

    type: Literal["shelf"] = "shelf"
    height: float = Field(gt=0)
    """Height in metres."""


FEATURES.register("price_band", PriceBand, "shop_parts.network:Band")
MODELS.register("shelf", Shelf, "shop_parts.network:ShelfNetwork")
register_metric(Metric("sure_mistakes", ("binary",), lambda label, score, weight: 0.0, False, "share of sure mistakes"))
'''

PIPELINE = """\
{plugins}data: {{train: nowhere.parquet}}
features:
  price: {{type: price_band, bands: {bands}}}
  city: id
model: {{type: shelf, height: 2}}
tasks:
  bought: {{type: binary, metrics: [auc, sure_mistakes]}}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source of the package."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "shop_parts").mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "shop_parts" / "__init__.py").write_text("")
    (folder / "shop_parts" / "parts.py").write_text(PARTS)
    (folder / "shop_parts" / "network.py").write_text("class Band: ...\nclass ShelfNetwork: ...\n")
    return folder


@pytest.fixture(scope="module")
def installed(source, tmp_path_factory):
    """A folder that the package is installed in."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "--no-index", "--target", target, source],
        check=True, capture_output=True,
    )  # fmt: skip
    return target


PROGRAM = """\
import contextlib, io, json, sys
from easyrec.cli.main import run
results = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    results.append([code, out.getvalue(), err.getvalue()])
heavy = sorted({"tensorflow", "keras"} & set(sys.modules))
print(json.dumps([results, heavy]))
"""


@pytest.fixture
def easyrec(tmp_path):
    """Runs command lines in one interpreter, where the packages in `path` can be imported."""

    def commands(*lines, path):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(lines)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        results, heavy = json.loads(done.stdout)
        assert not heavy
        return results

    return commands


def pipeline(tmp_path, plugins="", bands=8):
    path = tmp_path / f"pipeline{bands}.yaml"
    path.write_text(PIPELINE.format(plugins=plugins, bands=bands))
    return path.name


def row(table, name):
    return next(line for line in table.splitlines() if line.startswith(f"{name} "))


def test_an_installed_package_is_listed(easyrec, installed):
    lists = easyrec(["list", "features"], ["list", "models"], ["list", "metrics"], path=installed)
    assert [(code, err) for code, _, err in lists] == [(0, "")] * 3
    features, models, metrics = (out for _, out, _ in lists)
    for text in ("A price as one of a few bands.", "bands", "embedding_dim"):
        assert text in row(features, "price_band")
    for text in ("A model that knows shelves.", "height", "features"):
        assert text in row(models, "shelf")
    for text in ("binary", "lower", "share of sure mistakes"):
        assert text in row(metrics, "sure_mistakes")


def test_an_installed_package_is_validated_like_built_in_parts(easyrec, installed, tmp_path):
    good, wrong = pipeline(tmp_path), pipeline(tmp_path, bands=1)
    valid, invalid, resolved, schema = easyrec(
        ["validate", good, "--no-data"],
        ["validate", wrong, "--no-data", "--set", "model.hight=2"],
        ["validate", good, "--no-data", "--show"],
        ["schema"],
        path=installed,
    )
    assert valid == [0, "pipeline8.yaml is valid: 2 features, model shelf, task bought\n", ""]
    assert invalid == [
        2,
        "",
        "pipeline1.yaml:3  features.price.bands  expected a number of at least 2, got 1\n"
        "--set  model.hight  unknown option. Did you mean 'height'?\n"
        "error: 2 problems in the configuration\n",
    ]
    assert "bands: 8" in resolved[1]
    (tmp_path / "resolved.yaml").write_text(resolved[1])
    assert easyrec(["validate", "resolved.yaml", "--no-data"], path=installed)[0][0] == 0
    definition = json.loads(schema[1])["$defs"]["feature_type.price_band"]
    assert definition["properties"]["bands"]["description"] == "How many bands there are."


def test_a_module_named_in_the_configuration(easyrec, source, tmp_path):
    text = PIPELINE.format(plugins="", bands=8)
    (tmp_path / "plain.yaml").write_text(text)
    (tmp_path / "wrong.yaml").write_text(f"plugins: [shop_parts.part]\n{text}")
    (tmp_path / "named.yaml").write_text(f"plugins: [shop_parts.parts]\n{text}")
    unknown, missing, valid = easyrec(
        ["validate", "plain.yaml"],
        ["validate", "wrong.yaml"],
        ["validate", "named.yaml", "--no-data"],
        path=source,
    )
    assert unknown[0] == missing[0] == 2
    assert "plain.yaml:3  features.price.type  unknown feature type 'price_band'." in unknown[2]
    assert "plain.yaml:5  model.type  unknown model 'shelf'." in unknown[2]
    assert (
        "wrong.yaml:1  plugins.0  the module 'shop_parts.part' cannot be imported: ModuleNotFoundErr"
        in missing[2]
    )
    assert valid == [0, "named.yaml is valid: 2 features, model shelf, task bought\n", ""]


def test_a_module_named_on_the_command_line(easyrec, source):
    before, after = easyrec(
        ["list", "models"], ["list", "models", "--plugin", "shop_parts.parts"], path=source
    )
    assert "shelf" not in before[1]
    assert "A model that knows shelves." in row(after[1], "shelf")


def test_a_broken_package_harms_only_those_who_need_it(easyrec, tmp_path):
    broken = tmp_path / "broken"
    info = broken / "shop_parts-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[easyrec.plugins]\nshop = shop_parts.parts\n")
    reason = "the plug-in 'shop' of shop-parts (shop_parts.parts) cannot be loaded: ModuleNotFoundError"
    ordinary = str(ROOT / "feature_configs" / "movielens_deepfm.yaml")
    listed, valid, invalid = easyrec(
        ["list", "models"],
        ["validate", ordinary, "--no-data"],
        ["validate", pipeline(tmp_path)],
        path=broken,
    )
    assert listed[0] == 0
    assert "deepfm" in listed[1]
    assert listed[2].startswith(f"note: {reason}")
    assert valid[0] == 0
    assert invalid[0] == 2
    assert "unknown model 'shelf'. Known: dcn_v2, deepfm, " in invalid[2]
    assert f"Also, {reason}" in invalid[2]
