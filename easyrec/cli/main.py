"""The `easyrec` command line: which commands there are, and what happens when one fails.

To add a command, write `easyrec/cli/<name>.py` with one function of the same name as its command, documented and
annotated for typer, and add a line to `COMMANDS`. The module is imported only when the command runs, and it imports
what is heavy inside the function (TensorFlow above all, after a call of `start_tensorflow`). A group of commands is a
`typer.Typer` in place of the function.

    def train(config: ConfigArgument, overrides: OverridesOption = None) -> None:
        '''Trains a model, then evaluates and exports it.'''

Commands raise errors and never print them; `run` below turns them into one readable message and an exit code: 0 done,
1 failed while running, 2 wrong usage, configuration or input, 130 interrupted. Every command has --traceback.

Other packages add commands through the entry-point group `easyrec.commands`; each entry names a function or a
`typer.Typer`, and its name is the command's. It is loaded only when it runs, so a broken one harms no other. What
lives above `easyrec`, such as `serving`, joins in the same way.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.main import get_command

from easyrec import __version__
from easyrec.cli.common import INTERRUPTED, messages, show_error, with_traceback
from easyrec.errors import DataError, EasyRecError

COMMAND_GROUP = "easyrec.commands"


@dataclass(frozen=True)
class LazyCommand:
    """A command that is known by name and summary before its module is imported.

    Attributes:
        name: How it is called.
        summary: One line for the list of commands.
        target: "package.module:attribute", or an entry point.
    """

    name: str
    summary: str
    target: str | EntryPoint

    @property
    def own(self) -> bool:
        """Whether it is part of EasyRec, and not of another package."""
        return isinstance(self.target, str) or _package(self.target) == __package__.partition(".")[0]

    def load(self) -> Any:
        """The command, imported now.

        Raises:
            EasyRecError: It belongs to another package and cannot be imported.
        """
        if isinstance(self.target, str):
            module, _, attribute = self.target.partition(":")
            return _as_command(self.name, getattr(importlib.import_module(module), attribute))
        try:
            loaded = self.target.load()
        except Exception as error:  # a foreign module may fail in any way; the user needs its name
            package = _package(self.target)
            raise EasyRecError(
                f"the command {self.name!r} comes from the package {package} ({self.target.value}), which cannot be "
                f"loaded: {type(error).__name__}: {error}"
            ) from error
        return _as_command(self.name, loaded)


COMMANDS: tuple[LazyCommand, ...] = (
    LazyCommand("demo", "Train and try recommenders on real films, in minutes.", "easyrec.cli.demo:demo"),
    LazyCommand("init", "Look at the data, propose a configuration.", "easyrec.cli.init:init"),
    LazyCommand("validate", "Check a configuration, and the data it names.", "easyrec.cli.validate:validate"),
    LazyCommand(
        "schema", "Print the JSON Schema of configurations, for editors.", "easyrec.cli.schema:schema"
    ),
    LazyCommand(
        "list", "Show the features, models, losses, metrics, ... there are.", "easyrec.cli.list:list_parts"
    ),
    LazyCommand("prepare", "Encode the data once, into shards.", "easyrec.cli.prepare:prepare"),
    LazyCommand("train", "Train a model, measure it, export its bundle.", "easyrec.cli.train:train"),
    LazyCommand("evaluate", "Measure a run, or any predictions.", "easyrec.cli.evaluate:evaluate"),
    LazyCommand("compare", "Compare two runs, or rank many by a metric.", "easyrec.cli.compare:compare"),
    LazyCommand(
        "explain", "Show which features a run's predictions come from.", "easyrec.cli.explain:explain"
    ),
    LazyCommand("predict", "Predict the rows of files with a trained model.", "easyrec.cli.predict:predict"),
    LazyCommand("export", "Write the bundle of a run again.", "easyrec.cli.export:export"),
    LazyCommand("recommend", "Recommend items to one user.", "easyrec.cli.recommend:recommend"),
    LazyCommand("ab", "A/B experiments: check, plan, analyse.", "easyrec.cli.ab:ab"),
)


def installed_commands() -> list[LazyCommand]:
    """The commands that other packages add, by name; those whose name is taken are left out."""
    taken = {command.name for command in COMMANDS}
    return [
        LazyCommand(point.name, _summary(point), point)
        for point in sorted(entry_points(group=COMMAND_GROUP), key=lambda point: point.name)
        if point.name not in taken
    ]


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _summary(point: EntryPoint) -> str:
    """One line on a command: what its module says of itself if it is EasyRec's own, else which package it is from."""
    package = _package(point)
    found = find_spec(point.module) if package == __package__.partition(".")[0] else None
    if found is None or found.origin is None:
        return f"From the package {package}."
    module = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    return (ast.get_docstring(module) or "").partition("\n")[0]


def own_commands() -> list[LazyCommand]:
    """EasyRec's own commands, those that live above this package included."""
    return [*COMMANDS, *(command for command in installed_commands() if command.own)]


class LazyGroup(TyperGroup):
    """A group whose commands are listed from stand-ins and imported when they run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lazy = {command.name: command for command in (*COMMANDS, *installed_commands())}
        self.commands.update({name: _stand_in(command) for name, command in self._lazy.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to run and its arguments."""
        if args and args[0] in self._lazy:
            return args[0], self._lazy[args[0]].load(), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; Ctrl-C ends it with a message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            messages().print("interrupted", style="yellow")
            raise typer.Exit(INTERRUPTED) from None
        except (
            EOFError
        ) as error:  # click would take it for a refused question and say no more than "Aborted!"
            raise DataError(f"a file ends too early: {error}") from error


def _stand_in(command: LazyCommand) -> Any:
    def nothing() -> None:
        pass

    return _as_command(command.name, nothing, command.summary)


def _as_command(name: str, target: Any, summary: str | None = None) -> Any:
    """A function or a `typer.Typer` as what typer runs; anything else is taken to be that already."""
    if isinstance(target, typer.Typer):
        for registered in target.registered_commands:
            if registered.callback is not None:
                registered.callback = with_traceback(registered.callback)
        return get_command(target)
    if not callable(target) or hasattr(target, "params"):
        return target
    application = typer.Typer(add_completion=False, rich_markup_mode=_markup())
    application.command(name, help=summary)(with_traceback(target))
    return get_command(application)


def _markup() -> Literal["rich"] | None:
    """Frames and colours where a terminal watches; plain text elsewhere."""
    return "rich" if sys.stderr.isatty() else None


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"easyrec {__version__}")
        raise typer.Exit


def application() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="easyrec",
        cls=LazyGroup,
        no_args_is_help=True,
        rich_markup_mode=_markup(),
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
        ] = False,
    ) -> None:
        """Recommendation models from one YAML file: trained, measured, exported and served."""

    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        arguments: Without the program's name; those of the process unless given.

    Returns:
        The exit code.
    """
    try:
        get_command(application()).main(
            args=None if arguments is None else list(arguments), prog_name="easyrec"
        )
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001 the last resort: no command ends in a stack trace
        return show_error(error)
    return 0


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())
