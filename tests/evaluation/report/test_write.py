"""Reports: one page that needs nothing else, every section optional, text always escaped."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from evaluation import (
    Attribution,
    DataError,
    EvaluationError,
    Example,
    RecommendedItem,
    TaskColumns,
    add_explanations,
    check_leakage,
    evaluate,
    evaluate_ranking,
    permutation_importance,
    rate_baselines,
    write_report,
)
from evaluation.report.training_log import training_curves

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects what a page refers to, its ids and its text; refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href"):
                self.references.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    score = generator.random(300)
    table = pd.DataFrame(
        {
            "user": generator.integers(0, 30, 300),
            "liked": (generator.random(300) < score).astype(int),
            "p": score,
            "stars": score * 4,
            "stars_p": score * 4 + generator.normal(0, 0.5, 300),
            "kind": generator.integers(0, 3, 300),
            "kind_p": list(generator.dirichlet(np.ones(3), 300)),
        }
    )
    tasks = {
        "liked": TaskColumns("binary", "liked", "p"),
        "stars": TaskColumns("regression", "stars", "stars_p"),
        "kind": TaskColumns("multiclass", "kind", "kind_p"),
    }
    likes = generator.random((30, 25)) < 0.3
    affinity = likes + generator.normal(0, 0.4, likes.shape)
    ranking = evaluate_ranking(
        {
            "two_tower": lambda users: affinity[users],
            "popularity": lambda users: np.tile(likes.sum(axis=0), (len(users), 1)),
            "random": lambda users: generator.random((len(users), 25)),
        },
        sparse.csr_array(likes.astype(float)),
        ks=(5, 10),
        resamples=100,
    )
    return {
        "evaluation": evaluate(table, tasks=tasks, user="user", resamples=50),
        "ranking": ranking,
        "summary": {
            "rows": 1234567,
            "learning_rate": 0.00125,
            "data": Path("a.csv"),
            "resumed": False,
            "none": None,
        },
        "training_log": [
            {
                "event": "train",
                "step": step,
                "epoch": 1,
                "loss": 1 / step,
                "examples_per_second": 1e4,
                "note": "x",
            }
            for step in range(1, 40)
        ]
        + [
            {"event": "evaluation", "step": step, "loss": 2 / step, "liked/auc": 0.7} for step in (10, 20, 30)
        ],
        "coverage": {
            "age": {"missing": 0.0312, "unseen": 0.0, "values": 17},
            "city": {"missing": 0.5, "unseen": None},
        },
        "examples": [
            Example(
                "User 7",
                ["Alien (1979)"],
                ["Heat (1995)", RecommendedItem("Up (2009)", 0.91, True, "Animation")],
            ),
            {"user": "User 8", "history": [], "recommended": ["Big (1988)", {"title": "Jaws (1975)"}]},
        ],
        "config_text": "name: demo\nmodel: {type: deepfm}\n",
        "versions": {"easyrec": "0.1.0"},
        "command": "easyrec train demo.yaml --set training.seed=7",
    }


@pytest.fixture(scope="module")
def written(parts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_report(tmp_path_factory.mktemp("report"), title="Demo & more", **parts)


def test_the_page_needs_nothing_else(written: Any) -> None:
    html = written.html.read_text()
    page = Page(html)
    assert all(reference.startswith("#") or reference == "data:," for reference in page.references)
    assert "script" not in page.tags
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html
    assert len(html) < 1_000_000


def test_ids_are_unique_and_references_resolve(written: Any) -> None:
    html = written.html.read_text()
    page = Page(html)
    assert len(set(page.ids)) == len(page.ids)
    wanted = {reference[1:] for reference in page.references if reference.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", html))
    assert wanted <= set(page.ids)


def test_every_colour_of_a_plot_follows_the_page(written: Any) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", written.html.read_text(), flags=re.DOTALL))
    assert drawings.count("<svg") == 16
    colours = set(re.findall(r"#[0-9a-f]{6}\b", drawings))
    assert colours == set()
    assert "var(--accent)" in drawings


def test_the_page_says_what_the_numbers_say(written: Any, parts: dict[str, Any]) -> None:
    text = Page(written.html.read_text()).text
    ranking = parts["ranking"]
    assert ranking.verdict("two_tower") in text
    assert "1,234,567" in text
    assert "learning rate 0.00125" in text
    assert "3.1 %" in text
    assert "Heat (1995)" in text
    assert "liked later" in text
    assert "easyrec train demo.yaml" in text
    auc = parts["evaluation"]["liked"].metrics["auc"]
    assert f"AUC {auc.value:.3f}"[:-1] in text
    assert "Scores average" in text
    assert "of the variance is explained" in text


def test_json_and_markdown_hold_the_same_numbers(written: Any, parts: dict[str, Any]) -> None:
    as_json = json.loads(written.json.read_text())
    assert as_json["schema"] == "easyrec.report/1"
    assert as_json["ranking"] == json.loads(json.dumps(parts["ranking"].to_dict()))
    assert as_json["evaluation"] == json.loads(json.dumps(parts["evaluation"].to_dict()))
    assert as_json["model"] == "two_tower"
    assert as_json["examples"][0]["recommended"][1]["relevant"] is True
    markdown = written.markdown.read_text()
    assert markdown.startswith("# Demo & more\n")
    for text in (*as_json["verdicts"], "2. Up (2009) ✓", "| age | 3.1 % |", "```yaml\nname: demo", "NDCG@10"):
        assert text in markdown


def test_the_same_report_is_the_same_file(written: Any, parts: dict[str, Any], tmp_path: Path) -> None:
    again = write_report(tmp_path, title="Demo & more", **parts)
    for first, second in zip(written, again, strict=True):
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "evaluation",
        "ranking",
        "summary",
        "training_log",
        "coverage",
        "examples",
        "config_text",
        "versions",
        "command",
    ],
)
def test_every_section_can_stand_alone(name: str, parts: dict[str, Any], tmp_path: Path) -> None:
    paths = write_report(tmp_path, title="One part", **{name: parts[name]})
    page = Page(paths.html.read_text())
    assert page.tags.count("section") == (0 if name == "summary" else 1)
    assert json.loads(paths.json.read_text())["title"] == "One part"
    assert "undefined" not in paths.markdown.read_text()


def test_a_title_alone_is_a_report(tmp_path: Path) -> None:
    paths = write_report(tmp_path / "new" / "folder", title="Nothing yet")
    assert paths.markdown.read_text() == "# Nothing yet\n"
    assert Page(paths.html.read_text()).tags.count("section") == 0


def test_explanations_can_be_added_later(parts: dict[str, Any], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = pa.table({"age": generator.random(60), "label": generator.integers(0, 2, 60)})
    importance = [
        permutation_importance(
            lambda some: some["age"].to_numpy(),
            rows,
            rows["label"].to_numpy(),
            {"age": ["age"]},
            repeats=1,
            resamples=40,
        )
    ]
    attributions = [Attribution("user <7>", 1.0, 0.2, {"age": 0.8}, {"age": "7"}, "log-odds")]
    whole = write_report(
        tmp_path / "whole", title="T", **parts, importance=importance, attributions=attributions
    )
    write_report(tmp_path / "later", title="T", **parts)
    for _ in range(2):  # the second time replaces what the first added
        later = add_explanations(tmp_path / "later", importance=importance, attributions=attributions)
        assert later is not None
        for mine, other in zip(whole, later, strict=True):
            assert mine.read_text() == other.read_text()
    assert "user &lt;7&gt;" in whole.html.read_text()
    assert add_explanations(tmp_path / "nothing") is None
    later.markdown.write_text(later.markdown.read_text().replace("<!-- explanations -->", ""))
    assert add_explanations(tmp_path / "later") is None
    assert later.html.read_text() == whole.html.read_text()


def test_leakage_is_a_warning_and_a_bad_regression_is_said_to_be(tmp_path: Path) -> None:
    rows = pd.DataFrame({"label": [1.0, 2.0, 3.0, 4.0] * 5, "score": [9.0, 1.0, 8.0, 0.0] * 5})
    rows["key"] = range(20)
    leakage = check_leakage(rows, rows, label="label", features=["key"])
    paths = write_report(
        tmp_path, title="T", evaluation=evaluate(rows), leakage=leakage, notes=["Rows <b> left out"]
    )
    page = paths.html.read_text()
    assert page.count('class="verdict warning"') == 1
    assert "always predicting the mean label would be closer" in page
    assert "Rows &lt;b&gt; left out" in page
    assert json.loads(paths.json.read_text())["notes"] == ["Rows <b> left out"]


def test_hostile_and_foreign_names_are_shown_as_they_are(tmp_path: Path) -> None:
    bad = '<script>alert("x")</script>'
    relevant = sparse.csr_array(np.eye(30))
    scores = np.eye(30)
    names = [bad, "a$b$c", "_hidden", "双塔模型", "popularity"]
    ranking = evaluate_ranking({name: lambda users: scores[users] for name in names}, relevant, resamples=50)
    paths = write_report(
        tmp_path,
        title=bad,
        ranking=ranking,
        summary={bad: bad},
        coverage=pd.DataFrame({"feature": [bad], "missing": [float("nan")]}),
        examples=[{"user": bad, "history": [bad], "recommended": [bad]}],
        config_text=bad,
        command=bad,
        versions={bad: bad},
        training_log=[{"step": 1, "a$x$": 1.0}, {"step": 2, "a$x$": float("nan")}, {"step": 3, "a$x$": 2}],
    )
    html = paths.html.read_text()
    page = Page(html)
    assert "script" not in page.tags
    drawings = " ".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    for name in ("a$b$c", "_hidden", "双塔模型"):
        assert name in page.text
        assert name in drawings
    assert json.loads(paths.json.read_text())["training_log"][1]["a$x$"] is None


def test_one_class_and_logits_still_make_a_report(tmp_path: Path) -> None:
    one_class = evaluate(pd.DataFrame({"label": [0, 0], "score": [0.1, 0.2]}))
    paths = write_report(tmp_path, title="One class", evaluation=one_class)
    text = Page(paths.html.read_text()).text
    assert "all labels are of one class" in text
    assert "<svg" not in paths.html.read_text()
    logits = evaluate(pd.DataFrame({"label": [0, 1] * 9, "score": np.linspace(-3, 3, 18)}), resamples=50)
    text = Page(write_report(tmp_path, title="Logits", evaluation=logits).html.read_text()).text
    assert "Calibration" not in text
    assert "Left out log_loss" in text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"coverage": "none"}, DataError, "coverage must be a DataFrame or one mapping per feature, got str"),
        ({"examples": [{"user": "a"}]}, DataError, "lacks history, recommended"),
        ({"examples": [{"usr": "a"}]}, DataError, "did you mean 'user'"),
        (
            {
                "examples": [
                    Example("a", [], []),
                    {"user": "a", "history": [], "recommended": [{"name": "x"}]},
                ]
            },
            DataError,
            "An item of the report has an unknown key 'name'",
        ),
        ({"summary": {"x": object()}}, DataError, "A report cannot hold <object"),
        ({"model": "deepfm"}, EvaluationError, "Unknown model 'deepfm'"),
    ],
)
def test_wrong_parts_are_explained(
    arguments: Any, error: Any, message: str, parts: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        write_report(tmp_path, title="t", **{"ranking": parts["ranking"], **arguments})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="The report cannot be written to"):
        write_report(tmp_path / "file", title="t")


def test_curves_of_a_training_log() -> None:
    log = [
        {"event": "train", "step": 1, "loss": 1.0, "time": 5.0, "rate": 0.1},
        {"event": "evaluation", "step": 1, "loss": 1.5, "auc": 0.5},
        {"event": "train", "step": 2, "loss": 0.5, "time": 6.0, "flag": True},
        {"event": "evaluation", "step": 2, "loss": float("nan"), "auc": 0.6},
        {"event": "end"},
    ]
    axis, curves = training_curves(log)
    assert axis == "step"
    assert curves == {
        "loss": {"train loss": ([1.0, 2.0], [1.0, 0.5])},
        "auc": {"evaluation auc": ([1.0, 2.0], [0.5, 0.6])},
    }
    by_prefix = [{"epoch": n, "train_loss": n, "val_loss": n + 1} for n in (1, 2)]
    assert training_curves(by_prefix) == (
        "epoch",
        {"loss": {"train_loss": ([1.0, 2.0], [1.0, 2.0]), "val_loss": ([1.0, 2.0], [2.0, 3.0])}},
    )
    assert training_curves([{"loss": 1}, {"loss": 2}])[0] == "entry"
    assert training_curves([]) == ("entry", {})


def test_the_verdict_says_whether_the_baseline_is_beaten(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rate, item = generator.random(20), generator.integers(0, 20, 1500)
    label = (generator.random(1500) < rate[item]).astype(int)
    for name, score, words in (
        (
            "good",
            np.clip(0.2 + 0.4 * label + 0.3 * generator.random(1500), 0, 1),
            "It beats the baseline item_rate",
        ),
        ("bad", generator.random(1500), "It is worse than the baseline item_rate"),
        ("same", rate_baselines(label, item)["item_rate"], "no clear difference from the baseline item_rate"),
    ):
        result = evaluate(
            pd.DataFrame({"label": label, "score": score, "item": item}), item="item", resamples=60
        )
        paths = write_report(tmp_path / name, title=name, evaluation=result)
        assert any(words in verdict for verdict in json.loads(paths.json.read_text())["verdicts"]), name
