"""What commands share: arguments, consoles, and how errors are shown."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback as tracebacks
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

from easyrec.errors import ConfigError, EasyRecError, InputError

ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, a YAML file.")]
OverridesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set one value, such as training.epochs=5. May be repeated; a later one wins.",
    ),
]
TracebackOption = Annotated[
    bool, typer.Option("--traceback", help="Show where in the code an error happened.")
]

UNWATCHED_WIDTH = 1000
"""Columns where no terminal watches, so that a row of a table stays on one line."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
_WRONG_PLACES = (
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)
"""Errors of a path that was given; others of the system, such as a full disk, come while running."""


def output() -> Console:
    """The console for results, on standard output; plain and unwrapped where no terminal watches."""
    return _console(stderr=False)


def messages() -> Console:
    """The console for errors and notes, on standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = UNWATCHED_WIDTH
    return console


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and what it counts: `1 split`, `2 splits`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def step_teller(console: Console) -> Callable[[str], None]:
    """Shows what a long command says of its steps: names of steps, which take a while, and whole sentences."""

    def tell(text: str) -> None:
        console.print(f"{text} ..." if re.fullmatch(r"[a-z -]+", text) else text, markup=False)

    return tell


def note(text: str) -> None:
    """Says something that is neither result nor error."""
    messages().print(Text.assemble(("note: ", "yellow"), text))


def show_error(error: Exception) -> int:
    """Prints an error in words on standard error.

    Args:
        error: What ended a command.

    Returns:
        The exit code: that of an `EasyRecError`; that of wrong input for what `evaluation` refuses, and for paths
        that cannot be used; else 1.
    """
    console = messages()
    if isinstance(error, ConfigError) and (len(error.problems) > 1 or error.problems[0].path):
        for problem in error.problems:
            console.print(Text(str(problem)))
        count = len(error.problems)
        console.print(
            Text.assemble(
                ("error: ", "bold red"), f"{count} problem{'s' if count > 1 else ''} in the configuration"
            )
        )
        return error.exit_code
    if isinstance(error, EasyRecError) or _is_evaluation_error(error):
        text = str(error)
    elif isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        asked = re.search(r"allocating tensor with (shape\S+ and type \w+)", str(error))
        what = f"there is no room for a tensor of {asked[1]}" if asked else "an allocation failed"
        text = (
            f"out of memory: {what}.\nUse a smaller `training.batch_size`, narrower `model` layers, a smaller "
            "`embedding.dim` or vocabulary, or a machine with more memory; `easyrec train CONFIG --plan` prints what a "
            "training takes."
        )
    elif isinstance(error, OSError):
        text = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    else:
        text = (
            f"internal error: {type(error).__name__}: {error}\n"
            "This is a fault in EasyRec, not in your input. Run the command with --traceback to see where, and "
            "report it."
        )
    console.print(Text.assemble(("error: ", "bold red"), text))
    if isinstance(error, EasyRecError):
        return error.exit_code
    return InputError.exit_code if _is_evaluation_error(error) or isinstance(error, _WRONG_PLACES) else 1


def _is_evaluation_error(error: Exception) -> bool:
    """Whether `evaluation` raised it on purpose; asked without importing the package where it is not in use."""
    module = sys.modules.get("evaluation.errors")
    return module is not None and isinstance(error, module.EvaluationError)


def with_traceback(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the option --traceback, once: a group's commands are kept between runs."""
    if "traceback" in inspect.signature(command).parameters:
        return command

    @functools.wraps(command)
    def run(*args: Any, traceback: bool = False, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except Exception:  # shown here, where the option is known, and handled where all errors are
            if traceback:
                tracebacks.print_exc()
            raise

    # The annotations as objects: as text they would be looked up in this module.
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    option = inspect.Parameter(
        "traceback", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TracebackOption
    )
    run.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, "traceback": TracebackOption}
    return run
