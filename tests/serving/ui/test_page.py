"""The page in a real browser: what it shows, an event that changes the list, a key that is needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.serving.application import known_keys, make_app, running
from tests.serving.ui.browser import Page, open_browser

ANSWERED = "document.body?.dataset.answers === '{}'"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Page]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    with open_browser(program, tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser) -> Page:
    browser.asked.clear()
    browser.faults.clear()
    return browser


def test_the_files_are_served_with_a_policy_that_lets_nothing_else_in(tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as client:
        for path in ("/ui", "/ui/page.js", "/ui/page.css", "/ui/icon.svg"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for path in (
            "/ui/view.py",
            "/ui/..%2fview.py",
            "/ui/%2e%2e/routes.py",
            "/ui/static",
            "/ui/page.js/x",
        ):
            assert client.get(path).status_code in (401, 404), path
        for method, path in (
            ("GET", "/ui/data/setup"),
            ("GET", "/ui/data/person"),
            ("POST", "/ui/data/titles"),
        ):
            for key, status in (("reader", 403), ("writer", 403)):
                assert client.request(method, path, headers={"X-API-Key": key}).status_code == status
        assert client.get("/ui/data/setup", headers={"X-API-Key": "boss"}).status_code == 200


def test_what_the_page_asks_for(tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        setup = client.get("/ui/data/setup").json()
        assert setup["scenes"][0] == "home"
        assert "100" in setup["users"]
        assert setup["title"] == "title"
        assert setup["event_types"][0] == "rating"  # what the model's histories read
        client.post("/v1/events", json=[{"event_id": "1", "type": "click", "user_id": 100, "item_id": 7}])
        client.put("/v1/users/100", json={"properties": {"age": 31}})
        person = client.get("/ui/data/person?user_id=100").json()
        assert [(one["type"], one["title"]) for one in person["events"]] == [("click", "Film 7")]
        assert [one["title"] for one in person["before"]] == [f"Film {n}" for n in (4, 3, 2, 1, 0)]
        assert person["profile"] == {"age": 31}
        assert client.get("/ui/data/person?user_id=nobody").json()["known"] is False
        assert client.get("/ui/data/person").json()["events"] == []
        titles = client.post("/ui/data/titles", json=["1", 2, "none"]).json()
        assert titles == {"1": "Film 1", "2": "Film 2"}
        assert client.post("/ui/data/titles", json={"a": 1}).status_code == 422


def test_an_event_changes_the_list(page, tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        base = str(client.base_url)
        page.open(f"{base}/ui?user=100&n=5")
        page.wait_for(ANSWERED.format(1))
        expected = client.post("/v1/recommend", json={"user_id": 100, "n": 5}).json()["items"]
        shown = page.texts("#items .name")
        assert shown == [item["properties"]["title"] for item in expected]
        assert page.texts("#items .score") == [f"{item['score']:.4f}" for item in expected]
        assert page.texts("#history li")[1:] == [f"Film {n}" for n in (4, 3, 2, 1, 0)]
        stages = page.texts("#stages tbody tr")
        assert any("source popular" in row and "ms" in row for row in stages)
        assert page.texts("#dropped summary") == ["5 by filter seen"]
        assert page.texts("#models li")[0].split() == ["films", "1", "active,", "known"]
        assert all("popular" in sources for sources in page.texts("#items .found"))

        page.click("#items li:first-child button")
        page.wait_for(ANSWERED.format(2))
        assert page.texts("#history .event")[0].startswith("click")
        assert shown[0] in page.texts("#history .event")[0]
        assert shown[0] not in page.texts("#items .name")
        assert page.texts("#dropped summary") == ["6 by filter seen"]
        assert "5 of 5 places changed" in page.texts("#message")[0]
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 20_000

        assert page.faults == []
        assert all(address.startswith((base, "data:")) for address in page.asked if address != "about:blank")


def test_what_is_wrong_is_said_in_words(page, tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        page.open(f"{client.base_url}/ui?user=nobody")
        page.wait_for(ANSWERED.format(1))
        assert page.texts("#history") == ["Nothing is known of this person."]
        assert any("not known" in chip for chip in page.texts("#state .chip"))
        page.type("#context", '{"age": "old"}')
        page.click("#recommend")
        page.wait_for("document.querySelector('#message.bad')")
        assert "'age' takes a number" in page.texts("#message")[0]
        page.type("#context", "{")
        page.click("#recommend")
        page.wait_for("document.querySelector('#message').innerText.includes('JSON object')")


EXPERIMENTS = """
version: 1
layers:
  candidates: {owns: [sources.popular.n]}
experiments:
  few:
    layer: candidates
    status: running
    percent: 100
    variants:
      control: {}
      few: {overrides: {sources.popular.n: 2}}
    metrics: {goals: [ctr]}
"""


def test_experiments_are_shown_with_their_variants_and_what_a_user_is_in(page, tmp_path, monkeypatch):
    (tmp_path / "experiments.yaml").write_text(EXPERIMENTS, encoding="utf-8")
    app = make_app(tmp_path, monkeypatch, experiments=str(tmp_path / "experiments.yaml"))
    with running(app) as client:
        for user in range(100, 110):
            client.get(f"/v1/recommend/{user}")
        page.open(f"{client.base_url}/ui?user=100")
        page.wait_for(ANSWERED.format(1))
        [text] = page.texts("#experiments")
        assert split_rows(page) == expected_rows(client)
        assert sum(int(row[1]) for row in split_rows(page)) == 10
        assert page.texts("#experiments > div > .chip") == ["too few units to judge the split"]
        [mine] = client.get("/v1/recommend/100").json()["experiments"]
        assert f"few: {mine['variant']}" in page.texts("#state .chip")
        assert "running, layer candidates, 100.0 % of units" in text
        for user in range(110, 150):
            client.get(f"/v1/recommend/{user}")
        page.click("#recommend")
        page.wait_for(ANSWERED.format(2))
        assert split_rows(page) == expected_rows(client)
        p = client.get("/v1/experiments").json()["experiments"][0]["split_p"]
        assert page.texts("#experiments > div > .chip") == page.read(
            f"[`split as configured (p = ${{({p}).toPrecision(2)}})`]"
        )
        assert page.faults == []


def split_rows(page):
    """Cells of the variants that the page shows."""
    return [row.split("\t") for row in page.texts("#experiments tbody tr")]


def expected_rows(client):
    """The same from the API, without the page."""
    variants = client.get("/v1/experiments").json()["experiments"][0]["variants"]
    units, weights = (sum(one[name] for one in variants) for name in ("units", "weight"))
    return [
        [
            one["variant"],
            str(one["units"]),
            f"{100 * one['units'] / units:.1f} %",
            f"{100 * one['weight'] / weights:.1f} %",
            str(one["requests"]),
        ]
        for one in variants
    ]


def test_a_split_that_is_uneven_and_a_file_that_is_refused_are_marked(page, tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch)
    variant = {"weight": 50, "overrides": {}, "requests": 7, "control": False}
    uneven = {
        "experiment": "more",
        "layer": "recall",
        "status": "running",
        "share": 0.25,
        "split_p": 0.00001,
        "variants": [
            variant | {"variant": "a", "units": 10},
            variant | {"variant": "b", "units": 1090, "weight": 150},
        ],
    }
    experiments = {
        "refused": ["experiments.yaml:3 layers is unknown"],
        "experiments": [
            uneven,
            uneven | {"experiment": "edge", "split_p": 0.001},
            uneven | {"experiment": "below", "split_p": 0.00099},
            uneven | {"experiment": "over", "status": "stopped"},
            uneven | {"experiment": "mixed", "interleave": True, "split_p": None},
        ],
    }
    app.state.experiments = experiments
    app.router.routes.insert(0, Route("/v1/experiments", lambda request: JSONResponse(experiments)))
    with running(app) as client:
        page.open(f"{client.base_url}/ui?user=100")
        page.wait_for(ANSWERED.format(1))
        assert page.texts("#experiments .warn") == ["experiments.yaml:3 layers is unknown"]
        assert page.texts("#experiments .alarm") == [
            "split is not as configured (p < 0.0001)",
            "split is not as configured (p = 0.00099)",
        ]
        assert page.texts("#experiments > div > .chip:not(.alarm)") == [
            "split as configured (p = 0.0010)",
            "everybody gets a mixed list",
        ]
        assert split_rows(page)[:2] == [
            ["a", "10", "0.9 %", "25.0 %", "7"],
            ["b", "1,090", "99.1 %", "75.0 %", "7"],
        ]
        colour = "getComputedStyle(document.querySelector('#experiments .alarm')).color"
        red, green, blue = (int(one) for one in page.read(colour).strip("rgb()").split(","))
        assert red > green + blue


def test_names_of_items_cannot_become_part_of_the_page(page, tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        evil = "<img src=x onerror=document.title='gone'>"
        for item in range(60):
            client.put(f"/v1/items/{item}", json={"properties": {"title": evil}})
        page.open(f"{client.base_url}/ui?user=100")
        page.wait_for(ANSWERED.format(1))
        assert page.texts("#items .name")[0] == evil
        assert page.read("document.title") == "EasyRec"
        assert page.read("document.querySelectorAll('#items img').length") == 0


def test_a_key_is_asked_for_and_kept_for_this_tab_alone(page, tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as client:
        page.open(f"{client.base_url}/ui")
        page.wait_for("document.querySelector('#message.bad')")
        assert "needs a key with the scope admin" in page.texts("#message")[0]
        page.type("#key", "boss")
        page.wait_for(ANSWERED.format(1))
        assert page.texts("#items .name")
        assert page.read("localStorage.length") == 0
        assert page.read("document.cookie") == ""
        assert json.loads(page.read("JSON.stringify(Object.values(sessionStorage))")) == ["boss"]


def test_the_documentation_needs_no_network(page, tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        base = str(client.base_url)
        page.open(f"{base}/docs")
        page.wait_for("document.querySelectorAll('section').length > 20")
        assert "POST/v1/recommend" in page.texts("h2")
        assert page.read("getComputedStyle(document.querySelector('section')).borderTopStyle") == "solid"
        assert page.faults == []
        assert all(address.startswith((base, "data:")) for address in page.asked if address != "about:blank")
