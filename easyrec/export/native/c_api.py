"""TensorFlow's C library: found in the installed package, opened, and its functions declared."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from easyrec.errors import BundleError
from easyrec.startup import LOG_LEVEL, quiet_records

_FILE = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"

_pointer, _text, _int, _int64, _size = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_size_t,
)


class Output(ctypes.Structure):
    """`TF_Output`: one result of one operation."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [("operation", _pointer), ("index", _int)]


# By name: what it returns, and what it takes. What may take long is called with the interpreter lock free; around what
# takes less time than handing on the lock it is kept.
_LONG: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "TF_LoadSessionFromSavedModel": (
        _pointer,
        [_pointer, _pointer, _text, ctypes.POINTER(_text), _int, _pointer, _pointer, _pointer],
    ),
    "TF_NewSession": (_pointer, [_pointer, _pointer, _pointer]),
    "TF_SessionRun": (
        None,
        [
            *[_pointer, _pointer],
            *[ctypes.POINTER(Output), ctypes.POINTER(_pointer), _int],
            *[ctypes.POINTER(Output), ctypes.POINTER(_pointer), _int],
            *[_pointer, _int],
            *[_pointer, _pointer],
        ],
    ),
    "TF_CloseSession": (None, [_pointer, _pointer]),
    "TF_DeleteSession": (None, [_pointer, _pointer]),
    "TF_DeleteGraph": (None, [_pointer]),
}
_SHORT: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "TF_NewStatus": (_pointer, []),
    "TF_DeleteStatus": (None, [_pointer]),
    "TF_GetCode": (_int, [_pointer]),
    "TF_Message": (_text, [_pointer]),
    "TF_NewBufferFromString": (_pointer, [_text, _size]),
    "TF_DeleteBuffer": (None, [_pointer]),
    "TF_NewSessionOptions": (_pointer, []),
    "TF_DeleteSessionOptions": (None, [_pointer]),
    "TF_SetConfig": (None, [_pointer, _text, _size, _pointer]),
    "TF_NewGraph": (_pointer, []),
    "TF_GraphOperationByName": (_pointer, [_pointer, _text]),
    "TF_AllocateTensor": (_pointer, [_int, ctypes.POINTER(_int64), _int, _size]),
    "TF_DeleteTensor": (None, [_pointer]),
    "TF_TensorType": (_int, [_pointer]),
    "TF_NumDims": (_int, [_pointer]),
    "TF_Dim": (_int64, [_pointer, _int]),
    "TF_TensorByteSize": (_size, [_pointer]),
    "TF_TensorData": (_pointer, [_pointer]),
    "TF_StringInit": (None, [_pointer]),
    "TF_StringCopy": (None, [_pointer, _text, _size]),
    "TF_StringDealloc": (None, [_pointer]),
    "TF_StringGetSize": (_size, [_pointer]),
    "TF_StringGetDataPointer": (_pointer, [_pointer]),
}


class Library:
    """The functions of the C library, as attributes.

    Args:
        path: The library.
        quietly: Makes a context in which a model is loaded, which TensorFlow logs.

    Raises:
        OSError: It cannot be opened.
        AttributeError: It lacks a function.
    """

    def __init__(self, path: Path, quietly: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.quietly = quietly
        for opened, functions in ((ctypes.CDLL(str(path)), _LONG), (ctypes.PyDLL(str(path)), _SHORT)):
            for name, (result, arguments) in functions.items():
                function = getattr(opened, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # what is set above is found first; this is for type checkers
        raise AttributeError(name)

    @contextmanager
    def checked(self) -> Iterator[int]:
        """A status for calls inside of the block; when the block ends, what it says is raised.

        Raises:
            NativeError: It is not OK.
        """
        status = self.TF_NewStatus()
        try:
            yield status
            if self.TF_GetCode(status) != 0:
                message = self.TF_Message(status).decode(errors="replace")
                raise NativeError(message.partition("\n")[0])  # what follows are names within the graph
        finally:
            self.TF_DeleteStatus(status)


class NativeError(Exception):
    """TensorFlow says that something failed."""


@cache
def library() -> Library:
    """TensorFlow's C library, opened once, and its devices looked for, without the log it writes about them.

    Raises:
        BundleError: TensorFlow is not installed, or this package of it has no C library.
    """
    found = importlib.util.find_spec("tensorflow")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    if not folders:
        raise BundleError("TensorFlow is not installed; install it with `pip install tensorflow`")
    path = Path(folders[0]) / _FILE
    imported, chosen = "tensorflow" in sys.modules, os.environ.get(LOG_LEVEL)
    try:
        if imported:  # without a level its log is on, and none that is set now changes that
            return Library(path, nullcontext if chosen else quiet_records)
        if os.environ.setdefault(LOG_LEVEL, "2") in ("0", "1"):
            return Library(path)
        with quiet_records():
            opened = Library(path)
            _look_for_devices(opened)
            return opened
    except (OSError, AttributeError) as error:
        raise BundleError(
            f"TensorFlow's C library {path} cannot be used: {error}. It is part of the package `tensorflow` that PyPI "
            "has for Linux and macOS; install that one, or serve with LiteRT (`export: {litert: true}`)"
        ) from error


def _look_for_devices(opened: Library) -> None:
    options, graph = opened.TF_NewSessionOptions(), opened.TF_NewGraph()
    with opened.checked() as status:
        session = opened.TF_NewSession(graph, options, status)
    opened.TF_DeleteSessionOptions(options)
    with opened.checked() as status:
        opened.TF_DeleteSession(session, status)
    opened.TF_DeleteGraph(graph)
