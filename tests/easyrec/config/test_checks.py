import pytest

from easyrec.config.checks import RULES
from easyrec.config.checks.training import RANKING_METRICS
from easyrec.config.evaluation_names import check_names
from easyrec.config.loader import parse_config
from easyrec.errors import ConfigError
from evaluation.ranking import DEFAULT_METRICS


def complaints(config):
    with pytest.raises(ConfigError) as caught:
        parse_config(config)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def with_value(config, path, value):
    """The configuration with one value set; a value of None removes it."""
    *parents, last = path
    target = config
    for part in parents:
        target = target.setdefault(part, {})
    if value is None:
        target.pop(last, None)
    else:
        target[last] = value
    return config


def test_the_small_configuration_is_right(small):
    assert parse_config(small).model.type == "deepfm"


def test_every_rule_says_what_it_holds():
    assert all(rule.__doc__ and rule.__doc__.endswith(".") for rule in RULES)


@pytest.mark.parametrize(
    ("path", "value", "where", "message"),
    [
        # data
        ("data.where", "rating >=", "data.where", "but the expression ends"),
        ("data.weight", "a b <", "data.weight", "expected an operator"),
        ("data.negatives", {"where": "x = 1"}, "data.negatives.where", "write `==`"),
        ("evaluation.relevant", "", "evaluation.relevant", "the expression is empty"),
        ("tasks.liked.label", "rating > ", "tasks.liked.label", "but the expression ends"),
        ("features.recent.history", {"where": "(a"}, "features.recent.history.where", "expected `)`"),
        (
            "data.train",
            {"path": "x.csv", "options": {"delimter": ";"}},
            "data.train.options.delimter",
            "'delimiter'",
        ),
        (
            "data.train",
            {"path": "x.csv.gz", "options": {"header": "maybe"}},
            "data.train.options.header",
            "true or false",
        ),
        ("data.train", {"path": "x", "format": "parket"}, "data.train.format", "Did you mean 'parquet'?"),
        (
            "data.tables.item",
            {"path": "x.parquet", "options": {"a": 1}},
            "data.tables.item.options.a",
            "unknown option",
        ),
        # features
        ("features.x", {"type": "sequence", "of": "movi_id"}, "features.x.of", "Did you mean 'movie_id'?"),
        ("features.x", {"type": "sequence", "of": "genres"}, "features.x.of", "'genres' is a `tags` feature"),
        (
            "features.recent.vocabulary",
            ["a"],
            "features.recent.vocabulary",
            "the vocabulary is that of 'movie_id'",
        ),
        ("features.recent.table", "mine", "features.recent.table", "the table is that of 'movie_id'"),
        ("features.recent.embedding_dim", 8, "features.recent.embedding_dim", "16 wide, not 8"),
        ("features.x", {"type": "cross", "of": ["a", "a"], "buckets": 5}, "features.x.of", "listed twice"),
        (
            "features.x",
            {"type": "id", "table": "movie_id", "embedding_dim": 8},
            "features.x",
            "`embedding_dim` differs",
        ),
        (
            "features.x",
            {"type": "id", "table": "movie_id", "vocabulary": {"buckets": 9}},
            "features.x",
            "what its ids mean",
        ),
        (
            "features.x",
            {"type": "id", "table": "movie_id", "initializer": {"type": "zeros"}},
            "features.x",
            "`initializer` differs",
        ),
        ("features.year.table", "movie_id", "features.year", "what its ids mean"),
        (
            "features.C*",
            {"type": "id", "column": "c"},
            'features."C*".column',
            "stands for all columns it matches",
        ),
        (
            "features.C*",
            {"type": "cross", "of": ["a", "b"], "buckets": 5},
            'features."C*"',
            "names its columns in `of`",
        ),
        ("features.{C", "id", None, None),
        ("features.{C,{D}}", "id", 'features."{C,{D}}"', "braces are not closed, or nested"),
        # model and tasks
        ("model.features", ["movie_id", "genre"], "model.features.1", "Did you mean 'genres'?"),
        (
            "model",
            {"type": "wide_and_deep", "wide_features": ["yaer"]},
            "model.wide_features.0",
            "Did you mean 'year'?",
        ),
        ("model", "din", None, None),
        ("features.recent", None, None, None),
        ("model", {"type": "din", "features": ["genres", "year"]}, "model", "add one, such as"),
        (
            "model",
            {"type": "din", "features": ["genres", "recent"]},
            "model",
            "`model.features` must list both",
        ),
        ("tasks.liked", "retrieval", "tasks.liked.type", "models for retrieval: two_tower"),
        ("tasks.liked.loss", "huber", "tasks.liked", "the loss huber is for regression tasks"),
        ("tasks.a/b", "binary", "tasks.a/b", "no slash"),
        ("tasks.ranking", "binary", "tasks.ranking", "used in reports already"),
        ("features.movie_id.embedding_dim", 8, "model", "all must have one width"),
        ("model", {"type": "fm", "features": []}, "model", "no feature has one"),
        # training and evaluation
        ("training.early_stopping", {}, "training.early_stopping", "give `data.eval` or `data.split`"),
        (
            "training.cluster",
            {"staleness": 1, "streams": 2},
            "training.cluster.streams",
            "which `staleness: 1` rules out",
        ),
        (
            "training.checkpoints",
            {"metric": "auc"},
            "training.checkpoints.metric",
            "got 'auc'. Did you mean 'liked/auc'",
        ),
        (
            "training.checkpoints",
            {"metric": "liket/auc"},
            "training.checkpoints.metric",
            "Did you mean 'liked'?",
        ),
        (
            "training.checkpoints",
            {"metric": "liked/acu"},
            "training.checkpoints.metric",
            "Did you mean 'liked/auc'?",
        ),
        (
            "training.checkpoints",
            {"metric": "liked/gauc"},
            "training.checkpoints.metric",
            "list it in `tasks.liked.metr",
        ),
        (
            "training.checkpoints",
            {"metric": "liked/auc"},
            "training.checkpoints.metric",
            "give `data.eval` or `data.split`",
        ),
        (
            "tasks",
            {"a": {"type": "multiclass", "classes": 3}, "a_2": "binary"},
            "tasks.a_2",
            "those of 'a' would both be called 'a_2'",
        ),
        ("training.seed", -1, "training.seed", "at least 0"),
        ("training.seed", 2**32, "training.seed", "at most 4294967295"),
        ("evaluation.resamples", 39, "evaluation.resamples", "at least 40 resamples"),
        ("evaluation.k", [5, 0], "evaluation.k.1", "lengths are 1 or more"),
        ("evaluation.k", [], "evaluation.k", "give one or more lengths"),
        ("evaluation.k", [5, 5], "evaluation.k", "the length 5 is given 2 times"),
        ("export.checkpoint", "bets", "export.checkpoint", "got 'bets'"),
        (
            "training.optimizer",
            {"schedule": {"type": "step", "boundaries": [1, 2], "factors": [0.1]}},
            "training.optimizer.schedule",
            "give one factor per boundary",
        ),
        (
            "training.optimizer",
            {"schedule": {"type": "step", "boundaries": [2, 2], "factors": [0.1, 0.01]}},
            "training.optimizer.schedule",
            "must increase, got [2, 2]",
        ),
    ],
)
def test_one_thing_wrong(small, path, value, where, message):
    config = with_value(small, path.split("."), value)
    if where is None:
        parse_config(config)
        return
    found = complaints(config)
    assert where in [dotted for dotted, _ in found]
    assert any(dotted == where and message in text for dotted, text in found)


@pytest.mark.parametrize(
    ("key", "changes", "where"),
    [
        ("time", {"data.split": {"type": "time"}}, "data.split.type"),
        ("user", {"data.split": {"type": "user"}}, "data.split.type"),
        ("user", {"data.split": {"type": "user_latest"}}, "data.split.type"),
        ("time", {"data.split": {"type": "user_latest"}}, "data.split.type"),
        ("item", {}, "data.tables.item"),
        ("user", {"data.tables.user": "users.parquet"}, "data.tables.user"),
        ("item", {"data.negatives": {}}, "data.negatives"),
        ("user", {"features.recent.history": {}}, "features.recent.history"),
        ("time", {"features.recent.history": {}}, "features.recent.history"),
        ("user", {"evaluation.ranking": True}, "evaluation.ranking"),
        (
            "item",
            {"data.split": {"type": "random"}, "training.checkpoints": {"metric": "ranking/ndcg@10"}},
            "training.checkpoints.metric",
        ),
        ("user", {"model": "two_tower", "tasks.liked": "retrieval"}, "tasks.liked"),
    ],
)
def test_what_needs_a_key_says_so(small, key, changes, where):
    for path, value in changes.items():
        with_value(small, path.split("."), value)
    parse_config(small)
    del small["data"]["keys"][key]
    assert any(path == where and f"`data.keys.{key}`" in message for path, message in complaints(small))


def test_evaluation_rows_come_from_one_place(small):
    small["data"] |= {"eval": "e.parquet", "split": {}}
    assert complaints(small)[0][0] == "data.split"


def test_ranked_lists_are_judged_by_what_evaluation_computes():
    assert RANKING_METRICS == DEFAULT_METRICS


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("ranking/ndcg@7", "their lengths are in `evaluation.k`. Did you mean 'ranking/ndcg@5'?"),
        ("ranking/ndgc@10", "Did you mean 'ranking/ndcg@10'?"),
        ("ndcg@10", "got 'ndcg@10'. Did you mean 'ranking/ndcg@10'?"),
        ("liked/recall@10", "a retrieval task is judged by ranked lists; watch 'ranking/ndcg@5'"),
    ],
)
def test_a_ranking_metric_to_watch_must_be_computed(small, metric, message):
    small |= {"model": "two_tower", "tasks": {"liked": {"type": "retrieval", "label": "rating >= 4"}}}
    small["training"] = {"checkpoints": {"metric": metric}}
    assert [message in text for _, text in complaints(small)] == [True], complaints(small)


def test_baselines_must_exist(small):
    small["evaluation"] = {"baselines": ["popularity", "contentbased"]}
    found = check_names(parse_config(small))
    assert [(problem.path, problem.message) for problem in found] == [
        ("evaluation.baselines.1", "unknown baseline 'contentbased'. Did you mean 'content_based'?")
    ]


def test_ranking_cannot_be_watched_when_it_is_off(small):
    small["evaluation"] = {"ranking": False}
    small["training"] = {"checkpoints": {"metric": "ranking/ndcg@10"}}
    assert "turns off" in complaints(small)[0][1]


def test_retrieval_takes_no_sampled_negatives(small):
    small |= {"model": "two_tower", "tasks": {"liked": {"type": "retrieval", "label": "rating >= 4"}}}
    small["data"]["negatives"] = {"per_row": 4}
    assert [path for path, _ in complaints(small)] == ["data.negatives"]


def test_names_that_patterns_declare_are_known(small):
    small["features"] |= {"C*": "id", "{a,b}": "id", "clicks": {"type": "sequence", "of": "C1"}}
    small["model"] = {"type": "din", "features": ["C1", "C*", "clicks", "a", "C?"]}
    parse_config(small)


def test_features_may_share_a_table_when_they_agree(small):
    small["features"] |= {
        "seen": {"type": "tags", "table": "movie_id"},
        "a": {"type": "cross", "of": ["x", "y"], "buckets": 9, "table": "t"},
        "b": {"type": "cross", "of": ["y", "z"], "buckets": 9, "table": "t"},
    }
    parse_config(small)


def test_metrics_must_exist_and_fit(small):
    small["data"]["keys"] = {}
    small["data"]["tables"] = {}
    small["features"].pop("recent")
    small["tasks"] = {
        "liked": {"type": "binary", "label": "y", "metrics": ["auc", "acu", "rmse", "ndcg@10", "gauc"]},
        "stars": {"type": "regression", "label": "z", "metrics": ["rmse"]},
    }
    found = {problem.path: problem.message for problem in check_names(parse_config(small))}
    assert list(found) == [f"tasks.liked.metrics.{index}" for index in (1, 2, 3, 4)]
    assert "did you mean 'auc'" in found["tasks.liked.metrics.1"]
    assert "'rmse' is for regression, not for a binary task" in found["tasks.liked.metrics.2"]
    assert "`data.keys.user`" in found["tasks.liked.metrics.4"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"batch_size": True}, "expected a whole number, got 'true'"),
        ({"optimizer": {"dense": {"learning_rate": False}}}, "expected a number, got 'false'"),
        ({"optimizer": {"dense": {"learning_rate": float("inf")}}}, "expected a finite number, got inf"),
        ({"batch_size": 2.5}, "expected a whole number, got 2.5"),
        ({"batch_size": None}, "expected a whole number, got nothing (null)"),
        ({"optimizer": 5}, "expected a mapping of options, got 5"),
    ],
)
def test_values_of_another_type_are_refused(small, value, message):
    small["training"] = value
    assert [text for _, text in complaints(small)] == [message]


def test_numbers_in_text_and_whole_floats_are_numbers(small):
    small["training"] = {"batch_size": "64", "epochs": 3.0, "optimizer": {"dense": {"learning_rate": "1e-3"}}}
    training = parse_config(small).training
    assert (training.batch_size, training.epochs, training.optimizer.dense.learning_rate) == (64, 3, 0.001)
