"""What a recommender answers, from the request to the list, with a model whose scores are known."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from easyrec.errors import ConfigError
from serving.assignment import Assignment, Exposure, Subject
from serving.funnel.candidates import Found
from serving.funnel.query import Query, RequestError
from serving.funnel.stages import SOURCES, SourceConfig
from serving.recommender import Request, UnknownItemError
from serving.stores.base import Behaviour, Entry, StoreError
from tests.serving.world import NOW

POPULAR = {"sources": {"popular": {"type": "popularity", "n": 100}}}


def ids(world, **request: Any) -> list[Any]:
    return [item["item_id"] for item in world.recommender.answer(Request(**request)).payload["items"]]


def did(world, user: str | None, items: list[Any], session: str | None = None, **options: Any) -> None:
    world.store.store.append(
        [
            Entry(
                Behaviour(f"{user}-{session}-{item}", "click", str(item), NOW + place, **options),
                user,
                session,
            )
            for place, item in enumerate(items)
        ]
    )


def test_a_known_user_gets_what_the_model_scores_best_but_nothing_seen(world):
    scene = {**POPULAR, "filters": {"seen": {"type": "seen"}}}
    assert ids(world(scene), user_id="100", n=3) == [59, 58, 57]
    assert set(ids(world(scene), user_id="100", n=100)) == set(range(5, 60))


def test_an_unknown_user_gets_what_is_popular_and_no_error(world):
    answer = world().recommender.answer(Request(user_id="nobody", n=3))
    assert [item["item_id"] for item in answer.payload["items"]] == [0, 1, 2]
    assert answer.trace.fallback == "popularity"
    assert answer.payload["degraded"] == []


@pytest.mark.slow
def test_ten_thousand_unknown_users_are_answered_and_none_is_remembered(world):
    recommender = world(POPULAR).recommender
    for number in range(10_000):
        assert len(recommender.answer(Request(user_id=f"stranger {number}", n=1)).payload["items"]) == 1
    assert recommender.people.find("stranger 3", None, {})[0].history == ()


def test_the_segment_comes_before_what_is_popular_everywhere(world):
    scene = {
        "sources": {"city": {"type": "popularity", "by": "city"}, "popular": {"type": "popularity"}},
        "merge": {"by": "priority"},
        "ranking": {"enabled": False},
    }
    assert ids(world(scene), context={"city": "Lima"}, n=6) == [5, 6, 7, 8, 9, 0]
    assert ids(world(scene), context={"city": "Atlantis"}, n=2) == [0, 1]


def test_an_event_is_used_by_the_next_request(world):
    home = world()
    assert home.recommender.answer(Request(user_id="new")).trace.fallback == "popularity"
    did(home, "new", [7, 20])
    answer = home.recommender.answer(Request(user_id="new", n=60, debug=True))
    assert answer.payload["debug"]["user"]["columns"]["recent"] == [7, 20]
    assert answer.payload["debug"]["user"]["recent"] == [20, 7]
    assert {7, 20}.isdisjoint(item["item_id"] for item in answer.payload["items"])


def test_events_are_appended_to_the_sequences_of_the_bundle_unless_it_has_seen_them(world):
    home = world()
    did(home, "100", [30])
    old = Behaviour("old", "click", "3", 1_000_000_000.0)
    home.store.store.append([Entry(old, "100")])
    columns = home.recommender.answer(Request(user_id="100", debug=True)).payload["debug"]["user"]["columns"]
    assert columns["recent"] == [0, 1, 2, 3, 4, 30]


def test_the_condition_of_a_history_applies_to_events(world):
    home = world()
    home.store.store.append(
        [
            Entry(Behaviour("a", "rating", "7", NOW, 5.0), "new"),
            Entry(Behaviour("b", "rating", "8", NOW + 1, 2.0), "new"),
            Entry(Behaviour("c", "view", "9", NOW + 2, None, {"rating": 4}), "new"),
            Entry(Behaviour("d", "view", "10", NOW + 3, None, {"rating": "?"}), "other"),
            Entry(Behaviour("e", "view", "11", NOW + 3, None, {"rating": 5}), "other"),
        ]
    )
    debug = home.recommender.answer(Request(user_id="new", debug=True)).payload["debug"]
    assert debug["user"]["columns"]["recent"] == [7, 9]
    debug = home.recommender.answer(Request(user_id="other", debug=True)).payload["debug"]
    assert debug["user"]["columns"]["recent"] == [10, 11], "a value that fits no condition leaves all in"


def test_an_anonymous_session_counts_and_becomes_the_users(world):
    home = world()
    did(home, None, [7], session="s1")
    assert home.recommender.answer(Request(session_id="s1")).query.recent.tolist() == [7]
    assert home.recommender.answer(Request(user_id="new", session_id="s1")).query.recent.tolist() == [7]
    home.store.store.merge("s1", "new")
    assert home.recommender.answer(Request(user_id="new")).query.recent.tolist() == [7]
    assert home.recommender.answer(Request(session_id="s1")).query.recent.tolist() == []


def test_an_erased_user_is_unknown_to_bundle_and_store(world):
    home = world()
    did(home, "100", [7])
    home.store.store.erase("100", NOW)
    answer = home.recommender.answer(Request(user_id="100", debug=True))
    assert answer.payload["debug"]["user"]["known"] == []
    assert answer.query.recent.tolist() == []


def test_when_the_store_is_gone_the_bundle_answers_and_the_answer_says_so(world, monkeypatch):
    home = world()

    def gone(*_: Any) -> None:
        raise StoreError("the store is gone")

    monkeypatch.setattr(home.store.store, "read", gone)
    answer = home.recommender.answer(Request(user_id="100", n=1, debug=True))
    assert answer.payload["degraded"] == ["history"]
    assert answer.payload["debug"]["user"]["known"] == ["bundle"]
    monkeypatch.undo()
    home.store._closed_until = 0.0
    assert home.recommender.answer(Request(user_id="100", n=1)).payload["degraded"] == []


def test_when_the_model_fails_the_order_of_the_sources_answers(world):
    home = world(POPULAR)
    home.model.failing = RuntimeError("out of memory at 0x7f")
    answer = home.recommender.answer(Request(user_id="100", n=2))
    assert [item["item_id"] for item in answer.payload["items"]] == [0, 1]
    assert answer.payload["degraded"] == ["ranking"]
    assert "0x7f" not in str(answer.payload)


class HangingConfig(SourceConfig):
    """Hangs until it is let go."""

    type: Literal["hanging"] = "hanging"


class Hanging:
    go: ClassVar[threading.Event] = threading.Event()

    def __init__(self, config: HangingConfig, resources: Any) -> None:
        pass

    def find(self, query: Query) -> Found:
        self.go.wait(30)
        return Found(np.array([1]), np.array([1.0], np.float32))


class RaisingConfig(SourceConfig):
    """Raises."""

    type: Literal["raising"] = "raising"


class Raising:
    def __init__(self, config: RaisingConfig, resources: Any) -> None:
        pass

    def find(self, query: Query) -> Found:
        raise KeyError("secret")


@pytest.fixture
def broken_sources():
    Hanging.go.clear()
    SOURCES.register("hanging", HangingConfig, Hanging)
    SOURCES.register("raising", RaisingConfig, Raising)
    yield
    Hanging.go.set()
    SOURCES.unregister("hanging")
    SOURCES.unregister("raising")


def test_sources_that_hang_or_raise_are_left_out_and_named(world, broken_sources):
    scene = {
        "sources": {
            "slow": {"type": "hanging", "deadline_ms": 20},
            "slower": {"type": "hanging", "deadline_ms": 20},
            "broken": {"type": "raising"},
            "popular": {"type": "popularity"},
        }
    }
    home = world(scene)
    begun = time.monotonic()
    answer = home.recommender.answer(Request(user_id="100", n=3))
    assert time.monotonic() - begun < 10, "the two slow ones wait side by side, and not for ever"
    assert sorted(answer.payload["degraded"]) == ["source.broken", "source.slow", "source.slower"]
    assert len(answer.payload["items"]) == 3
    assert "secret" not in str(answer.payload)
    for _ in range(20):
        home.recommender.answer(Request(user_id="100", n=3))
    assert threading.active_count() < 40, "a source that hangs is not asked again and again"


def test_a_source_that_recovers_is_used_again(world, broken_sources):
    home = world({"sources": {"slow": {"type": "hanging", "deadline_ms": 5000}, **POPULAR["sources"]}})
    Hanging.go.set()
    answer = home.recommender.answer(Request(user_id="100", n=60))
    assert answer.payload["degraded"] == []
    assert {item["item_id"] for item in answer.payload["items"] if "slow" in item["sources"]} == {1}


def test_stages_are_left_out_when_the_time_is_up(world):
    home = world({**POPULAR, "deadline_ms": 0.001, "reranking": {"varied": {"type": "mmr"}}})
    answer = home.recommender.answer(Request(user_id="100", n=2))
    assert answer.payload["degraded"] == ["ranking", "reranking.varied"]
    assert len(answer.payload["items"]) == 2


def test_items_deleted_between_recall_and_the_answer_are_not_returned(world):
    home = world(POPULAR)
    score = home.model.score

    def deleting(user: Any, rows: Any) -> Any:
        home.model.remove_items([59, 57])
        return score(user, rows)

    home.model.score = deleting
    assert ids(home, user_id="100", n=3) == [58, 56, 55]


def test_items_that_were_put_during_a_request_wait_for_the_next_one(world):
    home = world()
    home.model.put_items({777: {"title": "New", "genres": "comedy"}})
    query_catalogue_size = len(home.model.catalogue)
    assert query_catalogue_size == 61
    assert 777 in ids(home, item_ids=["777", "3"], n=5, user_id="100")


def test_wanted_excluded_and_unknown_items(world):
    home = world(POPULAR)
    assert ids(home, user_id="100", item_ids=["3", "50", "nothing", "3", "41"]) == [50, 41, 3]
    assert ids(home, user_id="100", exclude_ids=["59", "nothing"], n=1) == [58]
    answer = home.recommender.answer(Request(kind="rank", user_id="100", item_ids=["3", "50", "x"]))
    assert [item["item_id"] for item in answer.payload["items"]] == [50, 3]
    assert answer.payload["unknown_ids"] == ["x"]


def test_a_hundred_thousand_ids_are_ranked(world):
    wanted = [str(number) for number in range(100_000)]
    answer = world().recommender.answer(Request(kind="rank", user_id="100", item_ids=wanted))
    assert len(answer.payload["items"]) == 60
    assert len(answer.payload["unknown_ids"]) == 99_940


def test_values_of_the_request_that_cannot_be_used_are_refused_and_stored_ones_left_out(world):
    home = world()
    with pytest.raises(RequestError, match="context: 'age' takes a number, got 'old'"):
        home.recommender.answer(Request(user_id="100", context={"age": "old"}))
    home.store.store.put_profile("new", {"age": "old", "city": "Oslo"})
    answer = home.recommender.answer(Request(user_id="new", n=3))
    assert answer.payload["degraded"] == ["profile"]
    assert len(answer.payload["items"]) == 3


def test_unknown_scenes_columns_and_items_are_named(world):
    home = world(POPULAR)
    with pytest.raises(RequestError, match=r"no scene 'hom'. Did you mean 'home'"):
        ids(home, scene="hom")
    with pytest.raises(RequestError, match=r"no column 'titel'. Did you mean 'title'"):
        ids(home, properties=["titel"])
    with pytest.raises(UnknownItemError, match="there is no item '999'"):
        ids(home, kind="similar", about="999")


def test_a_short_list_is_filled_up_by_the_fallback(world):
    scene = {
        "sources": {"one": {"type": "fixed", "items": [7]}},
        "filters": {"seen": {"type": "seen"}},
        "fallback": {"popular": {"type": "popularity"}},
    }
    answer = world(scene).recommender.answer(Request(user_id="100", n=4))
    assert [item["item_id"] for item in answer.payload["items"]] == [7, 5, 6, 8]
    assert [item["score"] for item in answer.payload["items"]][1:] == [None] * 3
    assert answer.trace.fallback == "popular"


def test_similar_and_popular(world):
    home = world()
    similar = home.recommender.answer(Request(kind="similar", about="10", n=5)).payload
    assert [item["item_id"] for item in similar["items"]][:1] == [11] or similar["items"]
    assert 10 not in [item["item_id"] for item in similar["items"]]
    assert ids(home, kind="popular", n=3) == [0, 1, 2]
    assert ids(home, kind="popular", n=3, user_id="100") == [5, 6, 7]


def test_experiments_override_any_parameter_and_are_reported(world):
    @dataclasses.dataclass
    class Fixed:
        overrides: dict[str, Any]

        def assign(self, subject: Subject) -> Assignment:
            return Assignment(self.overrides, [Exposure("ranking", "formula", str(subject.user_id))])

    assigner = Fixed({"ranking.score": "watch", "sources.popular.n": 10})
    home = world(POPULAR, assigner=assigner)
    answer = home.recommender.answer(Request(user_id="100", n=60)).payload
    assert [item["item_id"] for item in answer["items"]][:10] == list(range(10))
    assert answer["experiments"] == [{"layer": "ranking", "experiment": "formula", "variant": "100"}]
    for wrong in ({"sources.popular.size": 10}, {"sources.new.n": 1}, {"ranking.model": "x"}, {"n": "many"}):
        assigner.overrides = wrong
        answer = home.recommender.answer(Request(user_id="100", n=1)).payload
        assert answer["degraded"] == ["experiments"], "a variant that cannot be built takes no scene down"
        assert answer["experiments"] == []


def test_a_formula_combines_tasks(world):
    home = world({**POPULAR, "ranking": {"score": "watch - 0.5 * click"}})
    assert ids(home, user_id="100", n=2) == [0, 1]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"ranking": {"score": "wacht"}}, "scenes.home.ranking: .*Did you mean 'watch'"),
        (
            {"filters": {"old": {"type": "expression", "where": "yaer < 3"}}},
            "home.filters.old: .*Did you mean 'year'",
        ),
        (
            {"filters": {"old": {"type": "categories", "column": "genre", "allow": ["a"]}}},
            "filters.old: .*'genres'",
        ),
        (
            {"reranking": {"cap": {"type": "cap", "column": "titel"}}},
            "home.reranking.cap: .*Did you mean 'title'",
        ),
        ({"reranking": {"mmr": {"type": "mmr", "by": "vectors"}}}, "home.reranking.mmr: .*two_tower model"),
        ({"sources": {"towers": {"type": "two_tower"}}}, "home.sources.towers: .*needs a two_tower model"),
    ],
)
def test_a_scene_that_cannot_work_with_the_bundle_is_refused_when_it_is_loaded(world, part, said):
    with pytest.raises(ConfigError, match=said):
        world({**POPULAR, **part})


def test_a_scene_with_an_unknown_model_is_refused(world):
    with pytest.raises(ConfigError, match=r"scenes.home.ranking.model: there is no model 'fims'"):
        world({**POPULAR, "ranking": {"model": "fims"}})


def test_two_towers_find_candidates_for_another_models_catalogue(world):
    scene = {"sources": {"towers": {"type": "two_tower", "n": 10}}, "fallback": {}}
    home = world(scene, towers=True)
    answer = home.recommender.answer(Request(user_id="100", n=60))
    found = [item["item_id"] for item in answer.payload["items"]]
    assert len(found) == 10
    assert all(item % 4 == 0 for item in found)
    assert 0 not in found, "what the user has met makes room before the search"


def test_the_impression_is_written_with_what_was_served(world, tmp_path):
    home = world(POPULAR)
    home.writer.start()
    home.store.store.put_profile("100", {"age": 31, "plan": "free", "town": "x"})
    context = {"device": "tv", "town": "y"}
    answer = home.recommender.answer(Request(user_id="100", n=2, request_id="r1", context=context))
    home.writer.stop()
    lines = [path.read_text() for path in (tmp_path / "events").rglob("*.jsonl")]
    record = __import__("json").loads(lines[0])
    assert record["request_id"] == "r1"
    assert [item["item_id"] for item in record["items"]] == [59, 58]
    assert record["features"]["recent"] == [0, 1, 2, 3, 4]
    assert (record["features"]["age"], record["features"]["device"]) == (31, "tv")
    assert record["context"] == {"plan": "free", "town": "y"}, "what the next model may read"
    assert record["model"] == answer.payload["model"]


def test_what_was_served_is_not_served_again_while_a_filter_says_so(world):
    home = world({**POPULAR, "filters": {"served": {"type": "served", "minutes": 10}}})
    home.writer.start()
    pages = []
    for _ in range(3):
        pages += ids(home, user_id="100", n=5)
        home.writer.write([]).result(5)  # impressions and events are written in order
    assert len(set(pages)) == 15
    home.now += 700
    assert ids(home, user_id="100", n=5) == pages[:5]
    home.writer.stop()
