"""Every store keeps the same promises."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

import pytest

from serving.stores.base import (
    HISTORY,
    SEEN,
    TAKINGS_SECONDS,
    Behaviour,
    Entry,
    ItemChange,
    Mark,
    Record,
    Served,
    Store,
    StoreError,
    Takings,
    digest,
)
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore
from serving.stores.sqlite import SqliteStore

NOW = 1_800_000_000.0


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request, tmp_path) -> Iterator[Store]:
    if request.param == "memory":
        made: Store = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "store.sqlite")
    else:
        server = request.getfixturevalue("redis_server")
        from serving.stores.redis import RedisStore

        made = RedisStore(server.url, prefix=f"{tmp_path.name}:")
    yield made
    made.close()


def click(
    event_id: str,
    item: str | None = "i1",
    time: float = NOW,
    user: str | None = "u",
    session: str | None = None,
) -> Entry:
    return Entry(Behaviour(event_id, "click", item, time, 1.5, {"device": "tv"}), user, session)


def test_nothing_is_known_of_strangers(store):
    assert store.read("u", "s") == Record()
    assert store.read(None, None) == Record()
    assert store.known_events(["a"]) == set()
    assert store.known_events([]) == set()


def test_events_come_back_as_they_were_oldest_first(store):
    late, early = click("b", "i2", NOW + 1), click("a", None, NOW)
    store.append([late, early])
    record = store.read("u", None)
    assert record.behaviours == (early.behaviour, late.behaviour)
    assert record.seen == (Mark("i2", "click", NOW + 1),)
    assert store.known_events(["a", "b", "c"]) == {"a", "b"}


def test_appending_an_event_again_changes_nothing(store):
    store.append([click("a"), click("a")])
    store.append([click("a"), click("b", "i2")])
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a", "b"]


def test_people_do_not_see_each_other(store):
    store.append([click("a", user="u"), click("b", user="v"), click("c", user=None, session="u")])
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a"]
    assert [one.event_id for one in store.read(None, "u").behaviours] == ["c"]
    assert [one.event_id for one in store.read("u", "u").behaviours] == ["a", "c"]


def test_keys_may_be_any_text(store):
    for key in ("", "a\x1fb", "a b", "ü:é", "x" * 256, "'; --", "*", "\n"):
        store.append([click(f"e{key}", item=key or "0", user=key)])
        record = store.read(key, None)
        assert record.behaviours[0].item_id == (key or "0")
        assert record.seen == (Mark(key or "0", "click", NOW),)


def test_only_the_latest_events_are_kept_but_more_items_seen(store):
    entries = [click(f"e{n}", f"i{n}", NOW + n) for n in range(HISTORY + 50)]
    for start in range(0, len(entries), 100):
        store.append(entries[start : start + 100])
    record = store.read("u", None)
    assert [one.event_id for one in record.behaviours] == [f"e{n}" for n in range(50, HISTORY + 50)]
    assert len(record.seen) == HISTORY + 50
    assert [one.event_id for one in store.read("u", None, 2).behaviours] == [f"e{n}" for n in (248, 249)]
    assert store.read("u", None, 0).behaviours == ()


def test_old_events_that_come_late_do_not_push_out_later_ones(store):
    store.append([click("now", "i1", NOW)])
    store.append([click(f"e{n}", f"i{n}", NOW - 1000 + n) for n in range(2, HISTORY + 50)])
    assert store.read("u", None).behaviours[-1].event_id == "now"


def test_events_of_one_time_keep_the_order_in_which_they_came(store):
    names = ["c", "a", "d", "b"]
    store.append([click(name, "i1") for name in names])
    store.append([click(name, "i1") for name in (*names, "0")])
    store.append([click("z", "i1", user=None, session="s"), click("y", "i1", session="s")])
    assert [one.event_id for one in store.read("u", None).behaviours] == [*names, "0", "z", "y"]


def test_marks_are_bounded(store):
    for start in range(0, 5 * SEEN, SEEN):
        store.add_served([Served([f"i{n}" for n in range(start, start + SEEN)], NOW + start, "u")])
    served = store.read("u", None).served
    assert SEEN <= len(served) <= 2 * SEEN
    assert {mark.item_id for mark in served} >= {f"i{n}" for n in range(4 * SEEN, 5 * SEEN)}


def test_the_last_time_an_item_was_met_counts(store):
    store.append([click("a", "i1", NOW + 5), click("b", "i1", NOW)])
    assert store.read("u", None).seen == (Mark("i1", "click", NOW + 5),)
    store.add_served([Served(["i1"], NOW + 9, "u"), Served(["i1"], NOW + 2, "u"), Served([], NOW, "u")])
    assert store.read("u", None).served == (Mark("i1", "", NOW + 9),)


def test_a_session_is_merged_into_a_user(store):
    store.append([click("a", "i1", NOW, None, "s"), click("b", "i2", NOW + 1, "u")])
    store.add_served([Served(["i9"], NOW, None, "s")])
    store.merge("s", "u")
    record = store.read("u", None)
    assert [one.event_id for one in record.behaviours] == ["a", "b"]
    assert {mark.item_id for mark in record.seen} == {"i1", "i2"}
    assert [mark.item_id for mark in record.served] == ["i9"]
    assert store.read(None, "s") == Record()
    store.merge("s", "u")
    assert store.read("u", None) == record


def test_an_event_with_user_and_session_merges_them(store):
    store.append([click("a", "i1", NOW, None, "s")])
    store.append([click("b", "i2", NOW + 1, "u", "s")])
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a", "b"]
    assert store.read(None, "s").behaviours == ()


def test_profiles_and_erasure(store):
    store.put_profile("u", {"age": 3, "tags": ["a"], "none": None})
    store.append([click("a")])
    store.add_served([Served(["i1"], NOW, "u")])
    assert store.read("u", None).profile == {"age": 3, "tags": ["a"], "none": None}
    store.erase("u", NOW)
    assert store.read("u", None) == Record(erased=NOW)
    store.put_profile("u", {"age": 4})
    record = store.read("u", None)
    assert (record.profile, record.erased) == ({"age": 4}, NOW)


def test_who_was_erased_is_told_by_digests(store):
    assert store.erased_since(0) == {}
    store.put_profile("kept", {"age": 3})
    for user, time in (("u", NOW), ("ü", NOW + 5), ("u", NOW + 9)):
        store.erase(user, time)
    assert store.erased_since(0) == {digest("u"): NOW + 9, digest("ü"): NOW + 5}
    assert store.erased_since(NOW + 6) == {digest("u"): NOW + 9}


def test_a_damaged_row_of_sqlite_harms_no_other(tmp_path, caplog):
    store = SqliteStore(tmp_path / "store.sqlite")
    store.append([click("a"), click("b", "i2", NOW + 1)])
    store.put_profile("u", {"age": 3})
    for name in ("i1", "i2"):
        store.put_item(ItemChange(name, {"year": 1990}, True, NOW))
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("UPDATE events SET body = '[1' WHERE event_id = 'a'")
        connection.execute("UPDATE profiles SET columns = '{'")
        connection.execute("UPDATE items SET body = '{}' WHERE item = 'i1'")
    connection.close()
    record = store.read("u", None)
    assert ([one.event_id for one in record.behaviours], record.profile) == (["b"], None)
    assert [change.item_id for change in store.items_since(0)] == ["i2"]
    assert store.item("i1") is None
    assert "passed over" in caplog.text
    store.close()


def test_a_damaged_row_of_redis_harms_no_other(redis_server, tmp_path):
    import redis

    from serving.stores.redis import RedisStore

    prefix = f"{tmp_path.name}:"
    store = RedisStore(redis_server.url, prefix=prefix)
    store.append([click("a")])
    store.put_profile("u", {"age": 3})
    for name in ("i1", "i2"):
        store.put_item(ItemChange(name, {"year": 1990}, True, NOW))
    client = redis.Redis.from_url(redis_server.url)
    client.zadd(f"{prefix}events:u:u", {"damaged": NOW})
    client.hset(f"{prefix}profile:u", "columns", "{")
    client.hset(f"{prefix}items:", "i1", "7")
    record = store.read("u", None)
    assert ([one.event_id for one in record.behaviours], record.profile) == (["a"], None)
    assert [change.item_id for change in store.items_since(0)] == ["i2"]
    assert store.item("i1") is None
    client.close()
    store.close()


def test_items_come_back_in_the_order_of_their_last_change(store):
    assert store.items_since(0) == []
    assert store.item("i1") is None
    first = store.put_item(ItemChange("i1", {"title": "One"}, True, NOW))
    second = store.put_item(ItemChange("i2", {}, False, NOW))
    assert second > first
    third = store.put_item(ItemChange("i1", {"title": "Uno"}, True, NOW + 1))
    assert [(change.item_id, change.version) for change in store.items_since(0)] == [
        ("i2", second),
        ("i1", third),
    ]
    assert store.items_since(second) == [ItemChange("i1", {"title": "Uno"}, True, NOW + 1, third)]
    assert store.items_since(third) == []
    assert store.item("i1") == ItemChange("i1", {"title": "Uno"}, True, NOW + 1, third)


def test_many_threads_write_and_read(store):
    errors = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                store.append([click(f"{number}-{turn}", f"i{number}", NOW + turn, f"u{number}")])
                assert len(store.read(f"u{number}", None).behaviours) == turn + 1
        except Exception as error:  # noqa: BLE001 the main thread reports it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_it_answers(store):
    store.ping()


def test_old_events_are_forgotten_and_everything_else_stays(store):
    store.append([click("a", "i1", NOW - 100), click("b", "i2", NOW)])
    store.add_served([Served(["i1"], NOW - 100, "u"), Served(["i2"], NOW, "u")])
    store.append([click("c", "i1", NOW - 100, user=None, session="s")])
    store.put_profile("u", {"age": 3})
    store.prune(NOW - 50)
    record = store.read("u", None)
    assert [one.event_id for one in record.behaviours] == ["b"]
    assert [mark.item_id for mark in record.seen] == ["i2"]
    assert [mark.item_id for mark in record.served] == ["i2"]
    assert record.profile == {"age": 3}
    assert store.read(None, "s") == Record()
    store.merge("s", "u")
    assert [one.event_id for one in store.read("u", None).behaviours] == ["b"]


def test_what_is_too_old_leaves_redis_when_its_person_comes_again(redis_server, tmp_path):
    import redis

    from serving.stores.redis import RedisStore

    store = RedisStore(redis_server.url, prefix=f"{tmp_path.name}:")
    store.append([click("a", "i1", NOW - 100), click("b", "i2", NOW)])
    store.prune(NOW - 50)
    store.append([click("c", "i3", NOW)])
    client = redis.Redis.from_url(redis_server.url)
    assert client.zcard(f"{tmp_path.name}:events:u:u") == 2
    assert client.zcard(f"{tmp_path.name}:marks:u:u") == 2
    client.close()
    store.close()


def test_processes_share_what_they_have_counted(store):
    assert store.takings() == {}
    store.put_takings("one", Takings({"i1": 2.5, "ü": 1.0}, NOW))
    store.put_takings("two", Takings({"i1": 1.0}, NOW + 5))
    store.put_takings("one", Takings({"i2": 4.0}, NOW + 9))
    assert store.takings() == {"one": Takings({"i2": 4.0}, NOW + 9), "two": Takings({"i1": 1.0}, NOW + 5)}
    later = Takings({}, NOW + 7 + TAKINGS_SECONDS)
    store.put_takings("three", later)
    assert store.takings() == {"one": Takings({"i2": 4.0}, NOW + 9), "three": later}


def test_sqlite_outlives_its_process_and_is_shared(tmp_path):
    first = SqliteStore(tmp_path / "s")
    second = SqliteStore(tmp_path / "s")
    first.append([click("a")])
    assert [one.event_id for one in second.read("u", None).behaviours] == ["a"]
    second.append([click("b")])
    first.close()
    second.close()
    third = SqliteStore(tmp_path / "s")
    assert {one.event_id for one in third.read("u", None).behaviours} == {"a", "b"}
    third.close()


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "s").write_bytes(b"this is not a database, and it is long enough to be looked at as one" * 20)
    with pytest.raises(StoreError, match="s cannot be used"):
        SqliteStore(tmp_path / "s")
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteStore(tmp_path / "absent" / "s")


def test_redis_that_goes_away_and_comes_back(start_redis):
    from serving.stores.redis import RedisStore

    server = start_redis()
    store = RedisStore(server.url, timeout=0.5)
    store.append([click("a")])
    server.stop()
    for attempt in (
        lambda: store.read("u", None),
        lambda: store.append([click("b")]),
        lambda: store.put_item(ItemChange("i", {}, True, NOW)),
        store.ping,
    ):
        with pytest.raises(StoreError, match="Redis cannot be used"):
            attempt()
    server.start()
    store.append([click("b")])
    assert [one.event_id for one in store.read("u", None).behaviours] == ["b"]
    store.close()


def test_redis_is_asked_once_a_request(redis_server, tmp_path):
    import redis

    from serving.stores.redis import RedisStore

    store = RedisStore(redis_server.url, prefix=f"{tmp_path.name}:")
    store.append([click("a"), click("b", user=None, session="s")])
    client = redis.Redis.from_url(redis_server.url)
    sent = []
    send = redis.connection.Connection.send_packed_command
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            redis.connection.Connection,
            "send_packed_command",
            lambda self, command, check_health=True: sent.append(1) or send(self, command, check_health),
        )
        assert len(store.read("u", "s").behaviours) == 2
    assert len(sent) == 1
    client.close()
    store.close()


def test_every_key_in_redis_about_people_has_a_lifetime(redis_server, tmp_path):
    import redis

    from serving.stores.redis import RedisStore

    store = RedisStore(redis_server.url, prefix=f"{tmp_path.name}:", days=1)
    store.append([click("a"), click("b", user=None, session="s")])
    store.add_served([Served(["i1"], NOW, "u")])
    store.merge("s", "u")
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    keys = list(client.scan_iter(f"{tmp_path.name}:*"))
    assert keys
    assert {key: client.ttl(key) for key in keys if not 0 < client.ttl(key) <= 86_400} == {}
    client.close()
    store.close()


class Flaky:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.works = True
        self.calls = 0

    def read(self, user_id, session_id, history):
        self.calls += 1
        if not self.works:
            raise StoreError("gone")
        return Record()


def test_a_guarded_store_is_left_alone_after_a_failure():
    now, flaky = [0.0], Flaky()
    store = GuardedStore(flaky, retry=1.0, clock=lambda: now[0])
    flaky.works = False
    for _ in range(100):
        with pytest.raises(StoreError, match="gone"):
            store.read("u", None)
    assert flaky.calls == 1
    assert not store.available
    now[0] = 1.5
    with pytest.raises(StoreError, match="gone"):
        store.read("u", None)
    assert flaky.calls == 2
    flaky.works = True
    now[0] = 3.0
    assert store.read("u", None) == Record()
    assert store.available
    assert store.read("u", None) == Record()
