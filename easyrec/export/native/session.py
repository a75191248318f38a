"""A SavedModel in memory, and its signatures as functions of NumPy arrays."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from easyrec.errors import BundleError, nearest
from easyrec.export.native.c_api import Library, NativeError, Output, library
from easyrec.export.native.tensors import from_tensor, give_back, to_tensor
from easyrec.export.native.wire import SignatureDef, TensorInfo, signatures, varint

Arrays = dict[str, npt.NDArray[Any]]
_FILE, _VARIABLES = "saved_model.pb", "variables/variables.index"
_TAG = b"serve"
_INTRA_OP_THREADS, _INTER_OP_THREADS = 2, 5
"""Fields of `ConfigProto`."""
_THREAD_POOL, _CALLER = 3, -1
"""`RunOptions.inter_op_thread_pool`, and the value by which operations run in the thread that calls."""


class Session:
    """A loaded SavedModel. It may be called from several threads at once.

    Args:
        folder: The SavedModel.
        threads: That one call may use; all cores unless given. The first session of a process decides for all.

    Attributes:
        signatures: Its signatures, by name.

    Raises:
        BundleError: It cannot be loaded.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self._library = library()
        try:
            self.signatures = signatures((folder / _FILE).read_bytes())
            (folder / _VARIABLES).stat()  # without it TensorFlow loads a model that has no weights
            self.graph, self.session = _load(self._library, folder, threads)
        except (OSError, ValueError, NativeError) as error:
            raise BundleError(f"the model in {folder} cannot be loaded: {error}") from error
        self.run_options = None
        if threads is not None:
            # Handing a call of a millisecond to another thread costs as much as it does, when cores are busy.
            options = varint(_THREAD_POOL, _CALLER)
            self.run_options = self._library.TF_NewBufferFromString(options, len(options))
        weakref.finalize(self, _unload, self._library, self.graph, self.session, self.run_options)

    def function(self, name: str) -> SessionFunction:
        """A signature as a function.

        Raises:
            BundleError: There is no such signature.
        """
        if name not in self.signatures:
            raise BundleError(f"the model has no signature {name}.{nearest(name, self.signatures)}")
        return SessionFunction(self, name, self.signatures[name])


class SessionFunction:
    """One signature: takes NumPy arrays as keyword arguments and returns such arrays by name; text is bytes.

    Args:
        session: The model.
        name: The signature.
        definition: Its inputs and outputs.
    """

    def __init__(self, session: Session, name: str, definition: SignatureDef) -> None:
        self._session, self._library = session, library()
        self._name = name
        self._inputs = {name: info.type for name, info in definition.inputs.items()}
        self._outputs = list(definition.outputs)
        self._takes = self._places(list(definition.inputs.values()))
        self._gives = self._places(list(definition.outputs.values()))

    def __call__(self, **arrays: npt.NDArray[Any]) -> Arrays:
        """Calls the function.

        Raises:
            BundleError: An argument is missing, is one too many, or has another type or shape.
        """
        self._check(arrays)
        opened = self._library
        tensors: list[int] = []
        results = (ctypes.c_void_p * len(self._outputs))()
        try:
            for name, number in self._inputs.items():
                tensors.append(self._tensor(name, arrays[name], number))
            given = (ctypes.c_void_p * len(tensors))(*tensors)
            with opened.checked() as status:
                opened.TF_SessionRun(
                    *(self._session.session, self._session.run_options),
                    *(self._takes, given, len(tensors)),
                    *(self._gives, results, len(results)),
                    *(None, 0, None, status),
                )
            return {
                name: from_tensor(opened, result) for name, result in zip(self._outputs, results, strict=True)
            }
        except NativeError as error:
            raise BundleError(f"the model cannot compute {self._name}: {error}") from error
        finally:
            for result in filter(None, results):
                opened.TF_DeleteTensor(result)
            for tensor, number in zip(tensors, self._inputs.values(), strict=False):
                give_back(opened, tensor, number)  # after the results, which may be the same memory

    def _tensor(self, name: str, array: npt.NDArray[Any], number: int) -> int:
        try:
            return to_tensor(self._library, array, number)
        except TypeError as error:
            raise BundleError(f"the model cannot compute {self._name}: {name}: {error}") from error

    def _check(self, arrays: Arrays) -> None:
        if arrays.keys() != self._inputs.keys():
            absent = sorted(self._inputs.keys() - arrays.keys())
            unknown = sorted(arrays.keys() - self._inputs.keys())
            raise BundleError(
                f"the model's signature {self._name} takes {', '.join(sorted(self._inputs))}"
                + (f"; {', '.join(absent)} not given" if absent else "")
                + (f"; {', '.join(unknown)} unknown" if unknown else "")
            )

    def _places(self, infos: Sequence[TensorInfo]) -> Any:
        places = (Output * len(infos))()
        for place, info in zip(places, infos, strict=True):
            operation = self._library.TF_GraphOperationByName(self._session.graph, info.operation.encode())
            if not operation:
                raise BundleError(f"the model has no operation {info.operation}, which {self._name} needs")
            place.operation, place.index = operation, info.index
        return places


def _load(opened: Library, folder: Path, threads: int | None) -> tuple[int, int]:
    options, graph = opened.TF_NewSessionOptions(), opened.TF_NewGraph()
    tags = (ctypes.c_char_p * 1)(_TAG)
    try:
        if threads is not None:
            config = varint(_INTRA_OP_THREADS, threads) + varint(_INTER_OP_THREADS, threads)
            with opened.checked() as status:
                opened.TF_SetConfig(options, config, len(config), status)
        with opened.quietly(), opened.checked() as status:
            session = opened.TF_LoadSessionFromSavedModel(
                options, None, os.fsencode(folder), tags, len(tags), graph, None, status
            )
    except NativeError:
        opened.TF_DeleteGraph(graph)
        raise
    finally:
        opened.TF_DeleteSessionOptions(options)
    return graph, session


def _unload(opened: Library, graph: int, session: int, run_options: int | None) -> None:
    with opened.checked() as status:
        opened.TF_CloseSession(session, status)
        opened.TF_DeleteSession(session, status)
    opened.TF_DeleteGraph(graph)
    if run_options is not None:
        opened.TF_DeleteBuffer(run_options)
