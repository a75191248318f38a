"""SavedModels computed through the C library give what TensorFlow gives, whatever goes in and comes out."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from easyrec.errors import BundleError
from easyrec.export.native import c_api
from easyrec.export.native.c_api import library
from easyrec.export.native.session import Session

TYPES = ["float32", "float64", "int32", "uint8", "int16", "int8", "int64", "bool"]


class Model(tf.Module):
    """One function for each kind of thing that can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0, 3.0])
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), -1
        )


def save(folder: Path, functions: dict[str, Any], model: tf.Module | None = None) -> Path:
    model = Model() if model is None else model
    signatures = {
        name: tf.function(function, input_signature=specs, autograph=False)
        for name, (function, specs) in functions.items()
    }
    tf.saved_model.save(
        model, folder, {name: function.get_concrete_function() for name, function in signatures.items()}
    )
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = Model()
    functions: dict[str, Any] = {
        "weigh": (
            lambda x, y: {"sum": x @ model.weight[:, None], "y": y + 1},
            [tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([], tf.int64, name="y")],
        ),
        "look_up": (
            lambda text: {"ids": model.table.lookup(text), "text": text, "twice": text + text},
            [tf.TensorSpec([None, None], tf.string, name="text")],
        ),
        "fail": (
            lambda x: {"y": tf.debugging.check_numerics(x, "not a number") * 2},
            [tf.TensorSpec([None], name="x")],
        ),
    }
    for name in TYPES:
        functions[name] = (
            lambda x: {"same": tf.identity(x), "shape": tf.shape(x)},
            [tf.TensorSpec(None, tf.as_dtype(name), name="x")],
        )
    return save(tmp_path_factory.mktemp("saved") / "modèle", functions, model)


def test_numbers_go_in_and_out(saved: Path) -> None:
    weigh = Session(saved).function("weigh")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = weigh(x=x, y=np.asarray(41, np.int64))
    np.testing.assert_allclose(found["sum"], (x * [1, 2, 3]).sum(1, keepdims=True))
    assert (found["y"].shape, int(found["y"])) == ((), 42)
    transposed = np.asfortranarray(x)  # another order in memory
    np.testing.assert_array_equal(weigh(x=transposed, y=np.asarray(0))["sum"], found["sum"])
    assert weigh(x=x[:0], y=np.asarray(0))["sum"].shape == (0, 1)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3, 4)])
def test_types_and_shapes_stay(saved: Path, name: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape).astype(name)
    found = Session(saved).function(name)(x=values)
    np.testing.assert_array_equal(found["same"], values)
    assert found["same"].dtype == values.dtype
    assert found["shape"].tolist() == list(shape)


def test_text_is_any_bytes(saved: Path) -> None:
    look_up = Session(saved, threads=1).function("look_up")
    text = np.array([[b"a", b"", b"\x00\xff"], [b"b", b"x" * 1000, "é".encode()]], np.object_)
    found = look_up(text=text)
    assert found["ids"].tolist() == [[1, -1, -1], [2, -1, -1]]
    assert found["text"].tolist() == text.tolist()
    assert found["twice"].tolist() == [[value + value for value in row] for row in text.tolist()]
    assert look_up(text=np.array([["é"]], np.object_))["text"].tolist() == [["é".encode()]]
    assert look_up(text=np.empty((0, 2), np.object_))["twice"].shape == (0, 2)


def test_nothing_is_left_behind_by_calls(saved: Path) -> None:
    look_up = Session(saved).function("look_up")
    text = np.array([[bytes([65 + place]) * 100_000 for place in range(10)]], np.object_)
    process = psutil.Process()
    for _ in range(20):
        look_up(text=text)
    before = process.memory_info().rss
    for _ in range(300):
        look_up(text=text)
    assert process.memory_info().rss - before < 100 << 20  # a call's text left behind would be 300 MB


def test_a_model_that_is_let_go_leaves_the_memory(tmp_path: Path) -> None:
    model = tf.Module()
    model.weight = tf.Variable(tf.ones([5_000_000]))
    functions = {"add": (lambda x: {"y": x + model.weight[0]}, [tf.TensorSpec([], name="x")])}
    save(tmp_path / "model", functions, model)
    before = psutil.Process().memory_info().rss
    for _ in range(10):
        assert Session(tmp_path / "model").function("add")(x=np.asarray(1, np.float32))["y"] == 2
        gc.collect()
    assert psutil.Process().memory_info().rss - before < 120 << 20  # all ten would be 200 MB


def test_many_threads_call_at_once(saved: Path) -> None:
    session = Session(saved)
    weigh, look_up = session.function("weigh"), session.function("look_up")
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(50):
            x = np.full((number + 1, 3), number, np.float32)
            key = [b"a", b"b", b"c"][number % 3]
            good = weigh(x=x, y=np.asarray(number))["sum"].tolist() == [[6.0 * number]] * (number + 1)
            if not good or look_up(text=np.array([[key]], np.object_))["ids"][0, 0] != [1, 2, -1][number % 3]:
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": np.ones((1, 3), np.float32)}, "weigh takes x, y; y not given"),
        ({"x": np.ones((1, 3), np.float32), "y": np.asarray(1), "z": np.asarray(1)}, "z unknown"),
        ({"x": np.ones((1, 3)), "y": np.asarray(1)}, "x: it takes float32, got float64"),
        ({"x": np.ones((1, 3), np.complex64), "y": np.asarray(1)}, "x: it takes float32, got complex64"),
        ({"x": np.ones((1, 4), np.float32), "y": np.asarray(1)}, "cannot compute weigh"),
    ],
)
def test_wrong_arguments_are_named(saved: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Session(saved).function("weigh")(**arguments)


def test_what_fails_says_why_and_the_next_call_works(saved: Path) -> None:
    session = Session(saved)
    fail, look_up = session.function("fail"), session.function("look_up")
    with pytest.raises(BundleError, match="cannot compute fail: not a number") as raised:
        fail(x=np.array([np.nan], np.float32))
    assert "\n" not in str(raised.value)
    assert fail(x=np.array([2.0], np.float32))["y"].tolist() == [4.0]
    with pytest.raises(BundleError, match="text: text is str or bytes, got 7"):
        look_up(text=np.array([[7]], np.object_))


def test_an_unknown_signature_is_refused_with_the_nearest_one(saved: Path) -> None:
    with pytest.raises(BundleError, match=r"no signature look\. Did you mean"):
        Session(saved).function("look")


@pytest.mark.parametrize("damage", ["gone", "cut", "noise", "empty", "no_variables", "cut_variables"])
def test_a_damaged_model_is_refused(saved: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    graph = copy / "saved_model.pb"
    content = graph.read_bytes()
    if damage == "gone":
        graph.unlink()
    elif damage == "no_variables":
        shutil.rmtree(copy / "variables")
    elif damage == "cut_variables":
        (data,) = copy.glob("variables/*.data*")
        data.write_bytes(data.read_bytes()[:-5])
    else:
        noise = np.random.default_rng(0).bytes(len(content))
        graph.write_bytes({"cut": content[: len(content) // 2], "noise": noise, "empty": b""}[damage])
    with pytest.raises(BundleError, match="cannot be loaded"):
        Session(copy)


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: Any) -> None:
    library.cache_clear()
    try:
        monkeypatch.setattr(c_api, "_FILE", "libtensorflow_none.so")
        with pytest.raises(BundleError, match=r"libtensorflow_none\.so cannot be used: .*PyPI"):
            library()
        monkeypatch.setattr(c_api.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(BundleError, match="pip install tensorflow"):
            library()
    finally:
        library.cache_clear()


def run(script: str) -> Any:
    environment = {"PATH": "", "PYTHONPATH": ":".join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )


def test_a_fresh_process_computes_quietly_without_tensorflows_python(saved: Path) -> None:
    process = run(f"""
        import sys
        from pathlib import Path
        import numpy as np
        from easyrec.export.native.session import Session
        found = Session(Path({str(saved)!r}), threads=1).function("look_up")(text=np.array([["b"]], object))
        import numpy.random  # what NumPy loads late must not meet the library's own symbols
        numpy.random.default_rng(0).normal(size=3)
        print(found["ids"].tolist(), "tensorflow" in sys.modules)
    """)
    assert (process.stdout, process.stderr) == ("[[2]] False\n", "")


def test_tensorflows_python_can_follow(saved: Path) -> None:
    process = run(f"""
        from pathlib import Path
        import numpy as np
        from easyrec.export.native.session import Session
        look_up = Session(Path({str(saved)!r})).function("look_up")
        import tensorflow as tf
        print(tf.reduce_sum(tf.constant([1.0, 2.0])).numpy(), look_up(text=np.array([["b"]], object))["ids"].tolist())
    """)
    assert process.stdout == "3.0 [[2]]\n"
