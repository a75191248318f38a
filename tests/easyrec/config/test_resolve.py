import pytest

from easyrec.config.columns import ColumnInfo
from easyrec.config.loader import load_config, locate, parse_config
from easyrec.config.resolve import resolve
from easyrec.errors import ConfigError

MOVIES = {
    "user_id": ("int", "interactions"),
    "movie_id": ("int", "interactions"),
    "timestamp": ("timestamp", "interactions"),
    "rating": ("float", "interactions"),
    "device": ("string", "interactions"),
    "genres": ("string", "item"),
    "year": ("int", "item"),
    "clicks": ("list<string>", "user"),
}


def infos(columns):
    return {name: ColumnInfo(name, kind, table) for name, (kind, table) in columns.items()}


def resolved(small, columns=MOVIES, **extra):
    return resolve(parse_config(small), infos({**columns, **extra}))


def complaints(small, columns=MOVIES, **extra):
    with pytest.raises(ConfigError) as caught:
        resolved(small, columns, **extra)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def test_sides_come_from_keys_and_tables(small):
    small["features"] |= {
        "device": "id",
        "clicks": {"type": "sequence"},
        "taste": {"type": "cross", "of": ["movie_id", "year"], "buckets": 10},
        "mix": {"type": "cross", "of": ["user_id", "movie_id"], "buckets": 10},
        "kind": {"type": "id", "column": "device", "side": "user"},
    }
    sides = {name: feature.side for name, feature in resolved(small).features.items()}
    assert sides == {
        "user_id": "user",
        "movie_id": "item",
        "genres": "item",
        "year": "item",
        "recent": "user",
        "device": "context",
        "clicks": "user",
        "taste": "item",
        "mix": "context",
        "kind": "user",
    }


def test_a_sequence_without_a_column_becomes_a_history(small):
    history = resolved(small).features["recent"].history
    assert (history.of, history.last, history.where) == ("movie_id", 7, None)


def test_a_history_follows_the_column_of_its_feature(small):
    small["features"]["movie"] = {"type": "id", "column": "movie_id"}
    del small["features"]["movie_id"]
    small["features"]["recent"] = {
        "type": "sequence",
        "of": "movie",
        "history": {"where": "rating >= 4", "last": 9},
    }
    history = resolved(small).features["recent"].history
    assert (history.of, history.last, history.where) == ("movie_id", 9, "rating >= 4")


def test_a_sequence_with_a_column_stays_one(small):
    assert resolved(small, recent=("list<int>", "interactions")).features["recent"].history is None


def test_labels_are_filled_in(small):
    assert resolved(small).tasks["liked"].label == "rating >= 4"
    small["tasks"] = {"is-hit": {"type": "binary"}}
    assert resolved(small, **{"is-hit": ("bool", "interactions")}).tasks["is-hit"].label == "is-hit"


def test_a_retrieval_task_may_have_no_label(small):
    small["model"] = "two_tower"
    small["tasks"] = {"watched": "retrieval"}
    assert resolved(small).tasks["watched"].label is None


def test_patterns_are_written_out_in_the_order_of_the_columns(small):
    small["features"] |= {
        "I*": {"type": "number"},
        "I2": {"type": "id"},
        "?*_tag": {"type": "id", "embedding_dim": 16},
    }
    columns = dict.fromkeys(("I1", "a_tag", "I2", "I10", "_tag", "i3"), ("int", "interactions"))
    features = resolved(small, **columns).features
    assert list(features)[5:] == ["I1", "I10", "I2", "a_tag"]
    assert features["I2"].type == "id"
    assert features["I10"].type == "number"


def test_the_first_of_two_patterns_wins(small):
    small["features"] |= {"I?": {"type": "id"}, "I*": {"type": "number"}}
    features = resolved(small, **dict.fromkeys(("I1", "I10"), ("int", "interactions"))).features
    assert (features["I1"].type, features["I10"].type) == ("id", "number")


def test_a_pattern_leaves_out_what_answers_are_read_from(small):
    small["features"] = {"*": "id"}
    small["model"] = "logistic_regression"
    small["data"] = {"train": "train.parquet", "keys": {"time": "at"}, "weight": "importance * 2"}
    columns = dict.fromkeys(("rating", "at", "importance", "city"), ("int", "interactions"))
    assert list(resolved(small, columns).features) == ["city"]


def test_a_column_may_be_a_feature_and_weigh_rows(small):
    small["data"]["weight"] = "year + 1"
    small["features"]["year"] = {"type": "number"}
    assert "year" in resolved(small).features


def test_names_of_what_is_computed_are_not_taken(small):
    small["data"] |= {
        "weight": "rating",
        "keys": {"user": "label/liked", "item": "movie_id", "time": "timestamp"},
    }
    small["features"]["weight"] = {"type": "number"}
    small["features"]["seen"] = {"type": "number"}
    number = ("float", "interactions")
    found = complaints(small, **{"weight": number, "seen": number, "label/liked": ("int", "interactions")})
    assert any("'weight' has the name of the sample weight" in one for one in found)
    assert any("'seen' has the name of the list of items" in one for one in found)
    assert any("'label/liked' is the name of the label of 'liked'" in one for one in found)
    small["features"] = {"movie_id": "id", "seen": {"type": "number"}}
    del small["data"]["weight"]
    small["data"]["keys"]["user"] = "user_id"
    assert "seen" in resolved(small, seen=("float", "item")).features


@pytest.mark.parametrize("name", ["score", "position"])
def test_the_item_key_is_not_called_like_what_recommendations_add(small, name):
    small["data"]["keys"] = {"user": "user_id", "item": name}
    assert any(
        f"a column {name!r} already" in one for one in complaints(small, **{name: ("int", "interactions")})
    )


def test_groups_in_braces_name_each_column(small):
    small["features"]["{device,I*}"] = {"type": "id"}
    assert list(resolved(small, I1=("int", "interactions")).features)[-2:] == ["device", "I1"]
    small["features"]["{devise,I*}"] = small["features"].pop("{device,I*}")
    assert complaints(small, I1=("int", "interactions")) == [
        "features.\"{devise,I*}\": the column 'devise' matches nothing in the data. Did you mean 'device'?"
    ]


def test_selections_of_the_model_become_names(small):
    small["features"]["I*"] = "number"
    small["model"] = {
        "type": "wide_and_deep",
        "features": ["I*", "genres"],
        "wide_features": ["{year,genres}"],
    }
    model = resolved(small, I1=("int", "interactions"), I2=("int", "interactions")).model
    assert model.features == ["I1", "I2", "genres"]
    assert model.wide_features == ["year", "genres"]


def test_places_of_what_a_pattern_stands_for(write):
    path = write(
        'data: {train: t.parquet}\nfeatures:\n  a: id\n  "I*":\n    type: number\n    buckets: 3\n'
        "model: deepfm\ntasks: {y: binary}\n"
    )
    config = resolve(load_config(path), infos(dict.fromkeys(("a", "I1", "y"), ("int", "interactions"))))
    assert locate(config, "features.I1") == ("pipeline.yaml", 4)
    assert locate(config, "features.I1.buckets") == ("pipeline.yaml", 6)
    assert locate(config, "features.a.side") == ("pipeline.yaml", 3)


def test_resolving_twice_changes_nothing(small):
    small["features"]["I*"] = "number"
    once = resolved(small, I1=("int", "interactions"))
    assert resolve(once, infos(MOVIES | {"I1": ("int", "interactions")})) == once


def test_everything_wrong_is_reported_together_with_its_line(write):
    path = write(
        """\
data:
  train: t.parquet
  keys: {user: usr_id, item: movie_id, time: device}
  where: rating + 1
  weight: genres
features:
  user: {type: id, column: user_idd}
  year: {type: id, side: user}
  rating: {type: number}
  genres: {type: tags}
  "J*": {type: number}
  device: {type: number}
  clicks: {type: id}
model: {type: deepfm, features: [year, "K*"]}
tasks:
  liked: {type: binary, label: ratng >= 4}
  rated: {type: regression, label: rating}
  seen: {type: binary}
"""
    )
    with pytest.raises(ConfigError) as caught:
        resolve(load_config(path, environment={}), infos(MOVIES))
    found = [
        (problem.line, problem.path, problem.message.split("\n")[0]) for problem in caught.value.problems
    ]
    expected = [
        (3, "data.keys.user", "the data have no column 'usr_id'. Did you mean 'user_id'?"),
        (
            3,
            "data.keys.time",
            "the column 'device' holds text, which cannot be the time key; cast it to timestamp",
        ),
        (16, "tasks.liked.label", "no such column: 'ratng'. Did you mean 'rating'?"),
        (18, "tasks.seen", "`label` is not given and the data have no column 'seen'."),
        (5, "data.weight", "a weight is a number, but 'genres' is text"),
        (4, "data.where", "a condition is needed here, but this is a number"),
        (11, 'features."J*"', "the pattern 'J*' matches nothing in the data."),
        (7, "features.user", "the data have no column 'user_idd'. Did you mean 'user_id'?"),
        (8, "features.year.side", "`side: user`, but its column comes from the item table"),
        (9, "features.rating", "the column 'rating' is the label of 'rated'"),
        (10, "features.genres", "the column 'genres' holds text; say what stands between its values"),
        (
            12,
            "features.device",
            "the column 'device' holds text, which `type: number` does not read; cast it to float64",
        ),
        (13, "features.clicks", "the column 'clicks' holds lists of text, which `type: id` does not read"),
        (14, "model.features.1", "no feature 'K*'."),
    ]
    assert [line for line, _, _ in found] == sorted(line for line, _, _ in found)
    for line, dotted, message in expected:
        assert any(f[:2] == (line, dotted) and f[2].startswith(message) for f in found), (dotted, found)


@pytest.mark.parametrize(
    ("feature", "extra", "message"),
    [
        (
            {"type": "sequence"},
            {},
            "A sequence that is not a column is built from the interactions when `of` names",
        ),
        ({"type": "sequence", "history": {}}, {}, "`of` is missing"),
        ({"type": "sequence", "history": {"of": "movie"}}, {}, "no column 'movie'. Did you mean 'movie_id'?"),
        ({"type": "sequence", "history": {"of": "rating"}}, {}, "a history lists ids: text or integers"),
        ({"type": "id"}, {"x": ("float", "interactions")}, "cast it to int64 or string under `columns:`"),
        (
            {"type": "tags", "weights": "w"},
            {"x": ("list<int>", "item"), "w": ("map", "item")},
            "must be a list of numb",
        ),
        ({"type": "tags"}, {"x": ("int", "item")}, "single values are for `type: id`"),
        ({"type": "sequence"}, {"x": ("list<float>", "user")}, "does not read"),
        ({"type": "cross", "of": ["year", "rated"], "buckets": 9}, {}, "the data have no column 'rated'"),
    ],
)
def test_columns_that_do_not_fit_a_feature(small, feature, extra, message):
    small["features"]["x"] = feature
    assert any(message in line for line in complaints(small, **extra)), complaints(small, **extra)


def test_a_history_by_default_needs_keys(small):
    del small["data"]["keys"]["time"]
    assert any("`data.keys` must name time" in line for line in complaints(small))


def test_both_towers_need_features(small):
    small["model"] = "two_tower"
    small["tasks"] = {"watched": "retrieval"}
    small["features"] = {"user_id": "id", "device": "id"}
    assert complaints(small) == [
        "model: two_tower needs features of the item, but none is of `side: item`; set `side` on features, or name "
        "the item key in `data.keys.item`"
    ]
