"""One LiteRT model as a function of arrays, safe to call from several threads."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.errors import BundleError
from easyrec.export.litert.spec import FunctionEntry

try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError:  # it comes with the extra `litert`
    Interpreter = None

Views = Mapping[str, npt.NDArray[Any]]

_STEP = 64


def available() -> bool:
    """Whether the LiteRT runtime is installed."""
    return Interpreter is not None


def tensor_names_of(path: Path, signature: str) -> tuple[dict[str, str], dict[str, str]]:
    """LiteRT's own names of the inputs and outputs of a signature, by their names there."""
    interpreter = Interpreter(str(path))
    runner = interpreter.get_signature_runner(signature)
    inputs = {key: detail["name"] for key, detail in runner.get_input_details().items()}
    return inputs, {key: detail["name"] for key, detail in runner.get_output_details().items()}


def bucket(rows: int) -> int:
    """How many rows are computed for `rows`: a power of two up to 64, then a multiple of 64.

    A model of other shape has to lay its memory out anew, and requests ask for any number of candidates.
    """
    if rows >= _STEP:
        return -(-rows // _STEP) * _STEP
    return 1 << max(rows - 1, 0).bit_length()


class Engine:
    """A LiteRT model.

    An interpreter belongs to one call at a time; as many are made as calls ever run side by side. They share the
    weights of the file, which is memory-mapped.

    Args:
        folder: Where the file is.
        entry: The model.
        threads: Threads of one call.

    Raises:
        BundleError: The runtime is not installed, or the file is no model.
    """

    def __init__(self, folder: Path, entry: FunctionEntry, threads: int) -> None:
        self._path = folder / entry.file
        self._entry = entry
        self._threads = threads
        self._idle: queue.SimpleQueue[_Prepared] = queue.SimpleQueue()
        self._idle.put(self._prepare())

    def __call__(self, rows: int, fill: Callable[[Views], None]) -> dict[str, npt.NDArray[Any]]:
        """Computes rows.

        Args:
            rows: N.
            fill: Writes the inputs into arrays [N, ...] by name; must not keep them.

        Returns:
            The outputs [N, ...] by name.
        """
        prepared = None
        with suppress(queue.Empty):
            prepared = self._idle.get_nowait()
        if prepared is None:
            prepared = self._prepare()
        try:
            return prepared.run(rows, fill)
        finally:
            self._idle.put(prepared)

    def _prepare(self) -> _Prepared:
        if Interpreter is None:
            raise BundleError(
                "the LiteRT runtime is not installed: `pip install easyrec[litert]` installs it; or serve with "
                "`runtime: tensorflow`"
            )
        try:
            interpreter = Interpreter(str(self._path), num_threads=self._threads)
        except (ValueError, RuntimeError) as error:
            raise BundleError(f"{self._path} is no LiteRT model: {error}") from error
        return _Prepared(interpreter, self._entry)


class _Prepared:
    """An interpreter laid out for some number of rows, with the arrays that its inputs are written to.

    Not the interpreter's own memory: it refuses to work while anything, be it a traceback, still refers to that.
    """

    def __init__(self, interpreter: Any, entry: FunctionEntry) -> None:
        self._interpreter = interpreter
        details = {detail["name"]: detail for detail in interpreter.get_input_details()}
        self._inputs = {key: details[name] for key, name in entry.inputs.items()}
        outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
        self._outputs = {key: outputs[name] for key, name in entry.outputs.items()}
        self._shared = frozenset(entry.shared)
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._rows = -1

    def run(self, rows: int, fill: Callable[[Views], None]) -> dict[str, npt.NDArray[Any]]:
        self._lay_out(bucket(rows))
        fill({key: array[:rows] for key, array in self._arrays.items()})
        for key, array in self._arrays.items():
            self._interpreter.set_tensor(self._inputs[key]["index"], array)
        self._interpreter.invoke()
        # `get_tensor` copies.
        return {key: self._interpreter.get_tensor(index)[:rows] for key, index in self._outputs.items()}

    def _lay_out(self, rows: int) -> None:
        if rows == self._rows:
            return
        shapes = {
            key: [1 if key in self._shared else rows, *detail["shape"][1:]]
            for key, detail in self._inputs.items()
        }
        for key, shape in shapes.items():
            self._interpreter.resize_tensor_input(self._inputs[key]["index"], shape)
        self._interpreter.allocate_tensors()
        # What lies beyond the rows of a call is computed too, and must be numbers.
        self._arrays = {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}
        self._rows = rows
