"""The page as a browser shows it: no errors, nothing fetched, both colour schemes, and the width of a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from evaluation import (
    Attribution,
    Interactions,
    check_leakage,
    evaluate,
    evaluate_ranking,
    evaluate_slices,
    fit_baselines,
    write_report,
)

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to look at the page with")

# A page around the report that measures it in a frame of the width of a phone or a desk; the report holds no script.
FRAME = """<!DOCTYPE html><title></title><body style="margin:0">
<iframe style="width:{width}px;height:1200px;border:0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const inner = document.querySelector("iframe").contentWindow, page = inner.document;
  const wide = [...page.querySelectorAll("main *")].filter(
    (one) => !one.closest(".scroll, pre, svg") && one.getBoundingClientRect().right > inner.innerWidth + 1);
  const style = inner.getComputedStyle(page.body);
  document.title = JSON.stringify({{
    width: inner.innerWidth,
    scroll: page.documentElement.scrollWidth,
    fetched: inner.performance.getEntriesByType("resource").map((one) => one.name),
    paper: style.backgroundColor,
    ink: style.color,
    drawings: [...page.querySelectorAll("svg")].map((one) => one.getBoundingClientRect().width),
    wide: wide.map((one) => one.tagName),
  }});
}});
</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    score = generator.random(400)
    table = pd.DataFrame(
        {
            "user": generator.integers(0, 40, 400),
            "item": generator.integers(0, 20, 400),
            "time": np.arange(400),
            "label": (generator.random(400) < score).astype(int),
            "score": score,
            "a column with a rather long name": generator.choice(["one", "two", "three"], 400),
        }
    )
    likes = generator.random((40, 20)) < 0.3
    taken = generator.random((40, 20)) < 0.2
    taken[:5] = False
    users, items = np.nonzero(taken)
    log = Interactions.of(users, items, n_users=40, n_items=20)
    ranking = evaluate_ranking(
        {"a_model_with_a_long_name": lambda codes: generator.random((len(codes), 20)), **fit_baselines(log)},
        sparse.csr_array(likes.astype(float)),
        sparse.csr_array(taken.astype(float)),
        ks=(5, 10),
        interactions=log,
        resamples=50,
    )
    paths = write_report(
        tmp_path_factory.mktemp("page"),
        title="A report with everything in it",
        evaluation=evaluate(table, user="user", item="item", resamples=50),
        ranking=ranking,
        slices=[evaluate_slices(table, ["a column with a rather long name"], user="user", resamples=50)],
        leakage=check_leakage(table[:200], table[150:], label="label", time="time"),
        attributions=[Attribution("user 7", 1.0, 0.2, {"age": 0.5, "city": 0.3}, {"age": "7"}, "log-odds")],
        data={"training": {"rows": 200}, "evaluation": {"rows": 250}},
        training_log=[{"step": step, "loss": 1 / step} for step in range(1, 9)],
        command="easyrec evaluate runs/a --data " + "a/rather/long/path/" * 6 + "rows.parquet",
    )
    return paths.html


def look(
    page: Path, folder: Path, width: int, scheme: str
) -> tuple[dict[str, Any], str, np.ndarray[Any, Any]]:
    """What the browser measures, says on its console, and shows."""
    framed = folder / "framed.html"
    text = html.escape(page.read_text(encoding="utf-8"))
    framed.write_text(FRAME.format(width=width, page=text), encoding="utf-8")
    common = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={max(width, 500)},1200",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
    ]
    dumped = subprocess.run(
        [*common, "--dump-dom", framed.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    found = re.search(r"<title>(.*?)</title>", dumped.stdout, flags=re.DOTALL)
    assert found is not None
    picture = folder / "picture.png"
    subprocess.run(
        [*common, f"--screenshot={picture}", page.as_uri()], capture_output=True, check=True, timeout=120
    )
    return json.loads(html.unescape(found.group(1))), dumped.stderr, matplotlib.image.imread(picture)


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_the_page_is_readable(report: Path, tmp_path: Path, width: int, scheme: str) -> None:
    measured, console, picture = look(report, tmp_path, width, scheme)
    assert "CONSOLE" not in console
    assert measured["fetched"] == []
    assert measured["width"] == width
    assert measured["scroll"] <= width, (
        "the page itself must not scroll sideways; wide tables do within their frame"
    )
    assert measured["wide"] == []
    assert len(measured["drawings"]) >= 12
    assert min(measured["drawings"]) > 150
    paper, ink = (sum(map(int, re.findall(r"\d+", measured[name])[:3])) for name in ("paper", "ink"))
    assert (paper < ink) is (scheme == "dark")
    shown = picture[..., :3].mean(axis=(0, 1)).mean()
    assert bool(shown < 0.5) is (scheme == "dark")
    assert picture[..., :3].std() > 0.05, "something is drawn"
