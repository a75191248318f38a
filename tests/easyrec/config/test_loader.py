import os
import stat

import pytest

from easyrec.config.features import IdFeature
from easyrec.config.loader import load_config, load_stored_config, locate, parse_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import ConfigError

GOOD = """\
data: {train: train.parquet}
features:
  city: id
  "I*": {type: number, normalize: log1p}
model:
  type: deepfm
  hidden_units: [64, 32]
tasks:
  y: binary
"""


def test_a_short_file_loads(load):
    config = load(GOOD)
    assert config.features["city"] == IdFeature()
    assert config.model.hidden_units == (64, 32)
    assert config.data.train.path == ("train.parquet",)
    assert config.training.epochs == 1


def test_places_of_values(load):
    config = load(GOOD, "training.epochs=3")
    assert locate(config, "model.hidden_units") == ("pipeline.yaml", 7)
    assert locate(config, "model.hidden_units[1]") == ("pipeline.yaml", 7)
    assert locate(config, "features.city.vocabulary") == ("pipeline.yaml", 3)
    assert locate(config, 'features."I*".normalize') == ("pipeline.yaml", 4)
    assert locate(config, "training.epochs") == ("--set", None)
    assert locate(parse_config(config.model_dump()), "model") is None


def test_places_do_not_make_configurations_differ(load):
    assert load(GOOD) == load(GOOD.replace("\n", "\n\n")) == parse_config(load(GOOD).model_dump())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pipeline.yaml  the file is empty; a configuration starts with `data:`"),
        ("# only\n", "pipeline.yaml  the file is empty; a configuration starts with `data:`"),
        (
            "- a\n",
            "pipeline.yaml:1  a configuration is a mapping such as `data: ...`, but the file holds a list",
        ),
        (
            "hello",
            "pipeline.yaml:1  a configuration is a mapping such as `data: ...`, but the file holds 'hello'",
        ),
        (b"a: \xff\n", "pipeline.yaml:1  not UTF-8: byte 0xFF cannot be read; save the file as UTF-8"),
        (
            "a: 1\n".encode("utf-16"),
            "pipeline.yaml:1  not UTF-8: byte 0xFF cannot be read; save the file as UTF-8",
        ),
    ],
)
def test_files_that_hold_no_configuration(complaints, text, message):
    assert complaints(text) == [message]


def test_a_byte_order_mark_is_no_matter(load):
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).model.type == "deepfm"


def test_a_missing_file_names_its_neighbour(write):
    write(GOOD, "deepfm.yaml")
    with pytest.raises(ConfigError, match=r"no such file: depfm.yaml. Did you mean 'deepfm.yaml'\?"):
        load_config("depfm.yaml")
    with pytest.raises(ConfigError, match=r"no such file: nowhere/x.yaml. There is no folder nowhere either"):
        load_config("nowhere/x.yaml")


def test_a_folder_is_no_file(write):
    write(GOOD, "folder/deepfm.yaml")
    with pytest.raises(
        ConfigError, match=r"folder is a folder; name the configuration file in it. Known: deepfm.yaml"
    ):
        load_config("folder")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_names_that_no_file_can_have(name):
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(write):
    path = write(GOOD)
    os.chmod(path, stat.S_IWUSR)
    with pytest.raises(ConfigError, match="Permission denied"):
        load_config(path)


def test_all_problems_are_reported_together_in_the_order_of_the_file(complaints):
    text = """\
name: bad name
data:
  train: x.parquet
  evall: y
  where: rating >=
  split: {type: randm, fraction: 2}
features:
  u: {type: idd}
  i: {type: id, vocabulary: {min_count: 0, max_sze: 3}}
  t: {type: tags, pooling: meen, max_length: abc}
  s: {type: sequence, of: iii}
  v: {type: id, vocabulary: [yes, 007, 1.5]}
  w:
  n: {type: number, boundaries: [3, 1]}
  5: id
model: {type: din, hidden_units: [64, x], dropout: 1.5, wrong: 1}
tasks:
  liked: {type: binary, metrics: auc}
training:
  epochs: yes
  batch_size: true
  optimizer: {dense: {type: adm, learning_rate: .nan}, schedule: {type: step, boundaries: [], factors: [1]}}
"""
    assert complaints(text) == [
        "pipeline.yaml:1  name  expected text that matches ^[A-Za-z0-9][A-Za-z0-9._-]*$, got 'bad name'",
        "pipeline.yaml:4  data.evall  unknown option. Did you mean 'eval'?",
        "pipeline.yaml:6  data.split.type  expected one of random, time, user, user_latest; got 'randm'. "
        "Did you mean 'random'?",
        "pipeline.yaml:6  data.split.fraction  expected a number less than 1.0, got 2",
        "pipeline.yaml:8  features.u.type  unknown feature type 'idd'. Did you mean 'id'?",
        "pipeline.yaml:9  features.i.vocabulary.min_count  expected a number of at least 1, got 0",
        "pipeline.yaml:9  features.i.vocabulary.max_sze  unknown option. Did you mean 'max_size'?",
        "pipeline.yaml:10  features.t.pooling  expected one of sum, mean, max, sqrtn; got 'meen'. Did you mean 'mean'?",
        "pipeline.yaml:10  features.t.max_length  expected a whole number, got 'abc'",
        'pipeline.yaml:12  features.v.vocabulary.2  expected text, got the number 1.5; put it in quotes: "1.5"; or: '
        "expected a whole number, got 1.5",
        "pipeline.yaml:13  features.w  a feature type is a mapping with a `type`, such as {type: cross}",
        "pipeline.yaml:14  features.n  `boundaries` must increase, got [3.0, 1.0]",
        "pipeline.yaml:16  model.hidden_units.1  expected a whole number, got 'x'",
        "pipeline.yaml:16  model.dropout  expected a number less than 1.0, got 1.5",
        "pipeline.yaml:16  model.wrong  unknown option. Known: activation, attention_activation, attention_units, "
        "batch_norm, dropout, features, hidden_units, l2, softmax, type.",
        "pipeline.yaml:18  tasks.liked.metrics  expected a list, got 'auc'; write [auc]",
        "pipeline.yaml:20  training.epochs  expected a whole number, got 'yes'",
        "pipeline.yaml:21  training.batch_size  expected a whole number, got 'true'",
        "pipeline.yaml:22  training.optimizer.dense.type  expected one of adam, adamw, sgd, adagrad, rmsprop, nadam, "
        "adamax, ftrl, lion; got 'adm'. Did you mean 'adam'?",
        "pipeline.yaml:22  training.optimizer.dense.learning_rate  expected a finite number, got nan",
        "pipeline.yaml:22  training.optimizer.schedule.boundaries  must not be empty, got []",
    ]


def test_what_is_wrong_with_one_option_does_not_hide_checks_across_parts(complaints):
    text = GOOD + "training: {epoch: 5, early_stopping: {patience: 3}}\nevaluation: {k: [0]}\n"
    assert complaints(text) == [
        "pipeline.yaml:10  training.epoch  unknown option. Did you mean 'epochs'?",
        "pipeline.yaml:10  training.early_stopping  early stopping watches evaluation rows; give `data.eval` or "
        "`data.split`",
        "pipeline.yaml:11  evaluation.k.0  a list of 0 items cannot be judged; lengths are 1 or more",
    ]


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        ("data: {train: train.parquet}\n", "pipeline.yaml:1  data  is required, but not given"),
        ("  y: binary\n", "pipeline.yaml:8  tasks  expected a mapping, got nothing (null)"),
        ("  type: deepfm\n", "pipeline.yaml:5  model  `type` is missing; it says which model this is."),
    ],
)
def test_what_is_missing_is_named(complaints, removed, message):
    assert any(line.startswith(message) for line in complaints(GOOD.replace(removed, "")))


def test_text_that_yaml_1_1_takes_for_something_else(load):
    config = load(
        "data: {train: 2024-01-31, keys: {user: no, item: on}}\n"
        "features: {no: {type: id, vocabulary: [yes, no, 007, 2024-01-31]}, on: id}\n"
        "model: fm\ntasks: {y: binary}\ntraining: {optimizer: {dense: {learning_rate: 1e-3}}, tensorboard: yes}\n"
    )
    assert config.data.keys.user == "no"
    assert config.data.train.path == ("2024-01-31",)
    assert config.features["no"].vocabulary.values == ["yes", "no", "007", "2024-01-31"]
    assert config.training.optimizer.dense.learning_rate == 0.001
    assert config.training.tensorboard is True


# ------------------------------------------------------------------------------------------------------- overrides


def test_overrides_set_values(load):
    config = load(
        GOOD,
        "training.epochs=5",
        "training.epochs=6",
        "model.hidden_units=[8]",
        "model.dropout=1e-1",
        "features.city.embedding_dim=16",
        'features."I*".buckets=7',
        'features."I*".normalize=',
        "features.zip={type: id, column: plz}",
        "data.train.columns.city=string",
        "tasks.y.loss.type=focal",
        "name='007'",
        'data.where=city == "a=b"',
    )
    assert config.training.epochs == 6
    assert (config.model.hidden_units, config.model.dropout) == ((8,), 0.1)
    assert config.features["city"].embedding_dim == 16
    assert (config.features["I*"].buckets, config.features["I*"].normalize) == (7, None)
    assert config.features["zip"].column == "plz"
    assert (config.data.train.path, config.data.train.columns) == (("train.parquet",), {"city": "string"})
    assert config.tasks["y"].loss.type == "focal"
    assert config.name == "007"
    assert config.data.where == 'city == "a=b"'


def test_overrides_take_signs_as_text(load):
    config = load(
        GOOD, "data.train=*.parquet", "features.t={type: tags}", "features.t.separator=|", "output=!x"
    )
    assert config.data.train.path == ("*.parquet",)
    assert config.features["t"].separator == "|"
    assert config.output == "!x"


def test_overrides_reach_into_lists(load):
    assert load(GOOD, "model.hidden_units[1]=16").model.hidden_units == (64, 16)
    assert load(GOOD, "model.hidden_units.0=16").model.hidden_units == (16, 32)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epochs", "--set  'training.epochs': an override is written path=value, such as training.epochs=5"),
        ("=5", "--set  '=5': expected a key at position 1 of ''"),
        ("a b=5", "--set  'a b=5': expected a dot at position 2 of 'a b'"),
        ("model.hidden_units[7]=1", "--set  'model.hidden_units[7]=1': model.hidden_units is a list, which has a "
         "position from 0 to 1; got 7"),
        ("model.hidden_units.x=1", "--set  'model.hidden_units.x=1': model.hidden_units is a list, which has a "
         "position from 0 to 1; got 'x'"),
        ("model.hidden_units.0.x=1", "--set  'model.hidden_units.0.x=1': model.hidden_units.0 is 64, which has no "
         "options of its own"),
        ("training.epochs=[1", "--set  expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)"),
        ("training.epochs={a: 1, a: 2}", "--set  training.epochs  the key 'a' is given twice; keep one"),
        ("traning.epochs=5", "--set  traning  unknown option. Did you mean 'training'?"),
        ("training.epoch=5", "--set  training.epoch  unknown option. Did you mean 'epochs'?"),
        ("training.epochs=-5", "--set  training.epochs  expected a number of at least 1, got -5"),
    ],
)  # fmt: skip
def test_overrides_that_cannot_be_followed(complaints, override, message):
    assert [line.split("\n")[0] for line in complaints(GOOD, override)] == [message]


def test_options_of_the_type_that_an_override_replaced_are_explained(complaints, load):
    advice = "To leave the options of another type behind, write --set model=fm."
    (line,) = complaints(GOOD, "model.type=fm")
    assert "model.hidden_units  unknown option." in line
    assert line.endswith(advice)
    assert load(GOOD, "model=fm").model.type == "fm"
    (own,) = complaints(GOOD, "model=fm", "model.hidden_units=[8]")
    assert advice not in own, "the option came from the command line itself"


# ----------------------------------------------------------------------------------------------------------- stored


def test_what_another_version_has_stored_loads_without_options_that_are_gone(write, load, caplog):
    text = GOOD + "training: {epochs: 3, gone: 1, cluster: {gone_too: {a: 1}}}\n"
    path = write(text, "config.yaml")
    with pytest.raises(ConfigError, match=r"training\.gone  unknown option"):
        load_config(path)
    assert load_stored_config(path) == load(GOOD + "training: {epochs: 3}\n")
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"config.yaml:10  training.{name}  is no option of this version; it is left out"
        for name in ("cluster.gone_too", "gone")
    ]


def test_what_is_stored_and_wrong_is_refused(write):
    path = write(GOOD + "training: {epochs: -3, gone: 1}\n", "config.yaml")
    with pytest.raises(ConfigError, match=r"training\.epochs  expected a number of at least 1") as raised:
        load_stored_config(path)
    assert len(raised.value.problems) == 1


# ------------------------------------------------------------------------------------------------------ environment


def test_environment_variables(load):
    config = load(
        GOOD.replace("train.parquet", "${ROOT}/a-${DAY:-monday}.parquet")
        + 'output: $${HOME}/${NONE:-}runs\ntraining: {epochs: ${EPOCHS}, batch_size: ${SIZE:-64}}\nname: "${YEAR}"\n',
        environment={"ROOT": "/data", "EPOCHS": "3", "DAY": "", "YEAR": "2024"},
    )
    assert config.data.train.path == ("/data/a-monday.parquet",)
    assert config.output == "${HOME}/runs"
    assert (config.training.epochs, config.training.batch_size) == (3, 64)
    assert config.name == "2024"


def test_variables_that_are_not_there(complaints):
    text = GOOD.replace("train.parquet", "${DATA_DIT}") + "output: ${1}\n"
    assert complaints(text, environment={"DATA_DIR": "x"})[:2] == [
        "pipeline.yaml:1  data.train  the environment variable DATA_DIT is not set. Did you mean 'DATA_DIR'? "
        "Set it, or give a default: ${DATA_DIT:-default}",
        "pipeline.yaml:10  output  in '${1}', `${` starts no ${NAME} or ${NAME:-default}; write `$${` for the signs",
    ]


# --------------------------------------------------------------------------------------------------------- includes


def test_included_files_come_first_and_later_ones_win(write):
    write("training: {epochs: 1, batch_size: 8}\nmodel: {type: deepfm, dropout: 0.5}\n", "shared/a.yaml")
    write("include: a.yaml\ntraining: {epochs: 2, log_every: 7}\n", "shared/b.yaml")
    path = write(
        "include: [shared/b.yaml]\ndata: {train: x.parquet}\nfeatures: {a: id}\ntasks: {y: binary}\n"
        "training: {seed: 3}\nmodel: {hidden_units: [4]}\n"
    )
    config = load_config(path)
    training = config.training
    assert (training.epochs, training.batch_size, training.log_every, training.seed) == (2, 8, 7, 3)
    assert (config.model.dropout, config.model.hidden_units) == (0.5, (4,))
    assert locate(config, "training.epochs") == ("shared/b.yaml", 2)
    assert locate(config, "training.batch_size") == ("shared/a.yaml", 1)
    assert locate(config, "training.seed") == ("pipeline.yaml", 5)
    assert locate(config, "training.warm_start") == ("pipeline.yaml", 5)


def test_another_type_replaces_a_mapping(write):
    write(GOOD, "base.yaml")
    config = load_config(write("include: base.yaml\nmodel: {type: fm}\nfeatures: {'I*': {type: id}}\n"))
    assert config.model.type == "fm"
    assert config.features["I*"] == IdFeature()


def test_null_removes_an_included_entry(write):
    write(GOOD, "base.yaml")
    config = load_config(write("include: base.yaml\nfeatures: {'I*': null, b: id}\n"))
    assert list(config.features) == ["city", "b"]


def test_a_problem_in_an_included_file_names_that_file(write):
    write(GOOD.replace("deepfm", "depfm"), "base.yaml")
    with pytest.raises(
        ConfigError, match=r"^base.yaml:6  model.type  unknown model 'depfm'. Did you mean 'deepfm'\?$"
    ):
        load_config(write("include: base.yaml\n"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.yaml": "include: nope.yaml\n"}, "a.yaml:1  include  no such file: nope.yaml."),
        (
            {"a.yaml": "x: 1\ninclude:\n- b.yaml\n", "b.yaml": "include: a.yaml\n"},
            "b.yaml:1  include  'a.yaml' includes",
        ),
        (
            {"a.yaml": "include: a.yaml\n"},
            "a.yaml:1  include  'a.yaml' includes this file again; includes form a circle",
        ),
        ({"a.yaml": "include: b.yaml\n", "b.yaml": "- 1\n"}, "b.yaml:1  a configuration is a mapping"),
        (
            {"a.yaml": "include: {b: c}\n"},
            "a.yaml:1  include  a file name, or a list of them, is expected; got {'b': 'c'}",
        ),
        (
            {"a.yaml": "include: [5]\n"},
            "a.yaml:1  include  a file name, or a list of them, is expected; got [5]",
        ),
    ],
)
def test_includes_that_cannot_be_followed(write, files, message):
    for name, text in files.items():
        write(text, name)
    with pytest.raises(ConfigError) as caught:
        load_config("a.yaml")
    assert str(caught.value).startswith(message)


# --------------------------------------------------------------------------------------------------------- defaults


def test_defaults_fill_what_entries_leave_open(load):
    config = load(
        "defaults:\n  features: {embedding_dim: 8, separator: '|', vocabulary: {min_count: 2}}\n"
        "  tasks: {weight: 2}\n"
        "data: {train: x, keys: {user: u, time: t}}\n"
        "features:\n  a: id\n  b: {type: id, embedding_dim: 4, vocabulary: [x]}\n  c: {type: tags}\n"
        "  d: {type: number}\n  e: {type: sequence, of: b}\n"
        "model: wide_and_deep\ntasks: {y: binary, z: {type: regression, weight: 3}}\n"
    )
    features = config.features
    assert (features["a"].embedding_dim, features["a"].vocabulary.min_count) == (8, 2)
    assert (features["b"].embedding_dim, features["b"].vocabulary.values) == (4, ["x"])
    assert (features["c"].separator, features["c"].embedding_dim) == ("|", 8)
    assert features["e"].embedding_dim is None
    assert features["e"].separator == "|"
    assert {name: task.weight for name, task in config.tasks.items()} == {"y": 2, "z": 3}
    assert locate(config, "features.a.embedding_dim") == ("pipeline.yaml", 2)


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ("{features: {embeding_dim: 8}}", "defaults.features.embeding_dim  no feature type has the option "
         "'embeding_dim'. Did you mean 'embedding_dim'?"),
        ("{feature: {embedding_dim: 8}}", "defaults.feature  there are defaults for features and tasks, not 'feature'. "
         "Did you mean 'features'?"),
        ("{features: 8}", "defaults.features  a mapping of options is expected, got 8"),
        ("5", "defaults  a mapping is expected, got 5"),
        ("{features: {embedding_dim: 0}}", "features.city.embedding_dim  expected a number of at least 1, got 0"),
    ],
)  # fmt: skip
def test_defaults_that_fit_nothing(complaints, defaults, message):
    assert f"pipeline.yaml:10  {message}" in complaints(GOOD + f"defaults: {defaults}\n")


# ------------------------------------------------------------------------------------------------------- Python API


def test_python_values_make_a_configuration(small, write):
    config = parse_config(small)
    assert parse_config(config) is config
    assert parse_config(config, ["training.epochs=4"]).training.epochs == 4
    assert (
        parse_config(small | {"features": {**small["features"], "movie_id": IdFeature(embedding_dim=16)}})
        != config
    )
    assert parse_config(write(GOOD)).model.type == "deepfm"
    assert small["model"] == {"type": "deepfm"}


def test_python_values_are_not_files(small):
    assert parse_config(small | {"output": "${HOME}"}).output == "${HOME}"
    with pytest.raises(ConfigError, match="include  unknown option"):
        parse_config(small | {"include": "x.yaml"})


def test_problems_with_python_values_have_paths(small):
    small["features"]["year"] = {"type": "number", "buckets": 1}
    with pytest.raises(ConfigError, match=r"^features.year.buckets  expected a number of at least 2, got 1$"):
        parse_config(small)
    with pytest.raises(ConfigError, match="the keys of a configuration are text, got 5"):
        parse_config({5: 6})


def test_a_configuration_is_frozen(small):
    config = parse_config(small)
    with pytest.raises(ValueError, match="frozen"):
        config.name = "x"
    assert isinstance(config, PipelineConfig)
