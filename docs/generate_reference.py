"""Writes the pages that follow from the code: `docs/reference/*.md` as far as generated, and the JSON Schema.

Run it with `make docs` after changing a configuration class. `tests/architecture/test_documentation.py` fails
while a page on disk differs from what this script writes.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from easyrec.cli.main import LazyCommand, own_commands
from easyrec.config.base import OneOf
from easyrec.config.data import READERS
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import schema_text
from easyrec.registry import Registry
from serving.settings import Settings

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SCHEMA = ROOT / "feature_configs" / "schema" / "pipeline.schema.json"

CONFIGURATION_INTRODUCTION = """\
# Configuration reference

<!-- Written by docs/generate_reference.py from the configuration classes. Do not edit; run `make docs`. -->

Every key of a pipeline file, its type, its default and what it means. A key without a default must be given.
`easyrec schema` prints the same as JSON Schema, which editors use to complete and check the file;
`easyrec validate CONFIG` checks a file. How a file is read (overrides, `include:`, `${ENV}`, patterns) is in
[How a configuration file is read](configuration_files.md).
"""

SERVING_INTRODUCTION = """\
# Service reference

<!-- Written by docs/generate_reference.py from the settings classes. Do not edit; run `make docs`. -->

Every key of the file that `easyrec serve --config FILE` reads, scenes included. A variable of the environment wins over
the file: `EASYREC_STORE` sets `store`, `EASYREC_EVENTS__SYNC` sets `events.sync`. The command line wins over both. How
the parts work together is in [Serve recommendations](../how_to/serve_recommendations.md); the REST API describes
itself under `/docs`.
"""


def shared_keys(registry: Registry[Any]) -> dict[tuple[str, ...], dict[str, FieldInfo]]:
    """The keys that several members of a family inherit, by the names of those members, most shared first."""
    definers: dict[type[BaseModel], list[str]] = {registry.base: registry.names()}
    for part in registry:
        for ancestor in part.config.__mro__[1:]:
            if issubclass(ancestor, registry.base) and ancestor is not registry.base:
                definers.setdefault(ancestor, []).append(part.name)
    groups: dict[tuple[str, ...], dict[str, FieldInfo]] = {}
    for cls, names in definers.items():
        groups.setdefault(tuple(names), {}).update(own_fields(cls))
    return {names: groups[names] for names in sorted(groups, key=len, reverse=True) if groups[names]}


def own_fields(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that `cls` itself defines, without `type`, which selects the class."""
    annotations = inspect.get_annotations(cls)
    return {name: field for name, field in cls.model_fields.items() if name in annotations and name != "type"}


def anchor(heading: str) -> str:
    """The fragment that a Markdown heading is reached by."""
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def link(text: str) -> str:
    """A link to the heading of the same text."""
    return f"[{text}](#{anchor(text)})"


def title(cls: type[BaseModel]) -> str:
    """The heading of a class that is not a member of a family."""
    name = cls.__name__.removesuffix("Config")
    return name.removesuffix("Settings") or name


def tag(cls: type[BaseModel]) -> str | None:
    """The one value of `type` that selects a class, or None for a class without such a key."""
    field = cls.model_fields.get("type")
    values = get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
    return str(values[0]) if len(values) == 1 else None


def family_title(registry: Registry[Any]) -> str:
    """The heading of a family."""
    kind = registry.kind.capitalize()
    return kind + ("es" if kind.endswith("s") else "s")


def type_text(annotation: Any, metadata: list[Any]) -> str:
    """How a reader of YAML says the type of a key."""
    for item in metadata:
        if isinstance(item, OneOf):
            return link(family_title(item.registry))
        accepted = getattr(item, "json_schema_input_type", PydanticUndefined)
        if accepted not in (PydanticUndefined, Any):
            return type_text(accepted, [])
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0], list(arguments[1:])) + limits(list(arguments[1:]))
    if origin in (Union, types.UnionType):
        shown = [type_text(member, []) for member in arguments if member is not type(None)]
        return " or ".join(dict.fromkeys(shown))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (list, tuple, set, frozenset):
        return f"list of {type_text(arguments[0], [])}"
    if origin is dict:
        return f"mapping to {type_text(arguments[1], [])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{tag(annotation) or title(annotation)}](#{anchor(title(annotation))})"
    if isinstance(annotation, type) and issubclass(annotation, Path):
        return "path"
    names = {int: "integer", float: "number", str: "text", bool: "`true` or `false`", Any: "anything"}
    return names.get(annotation, str(getattr(annotation, "__name__", annotation)))


def limits(metadata: list[Any]) -> str:
    """The range of a number or the length of a list, in words."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "pattern": "matching"}
    found = [
        f"{phrase} `{value}`" if name == "pattern" else f"{phrase} {value:g}"
        for item in metadata
        for name, phrase in words.items()
        if (value := getattr(item, name, None)) is not None
    ]
    return f" ({', '.join(found)})" if found else ""


def default_text(field: FieldInfo) -> str:
    """The default as it would be written in YAML."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        chosen = getattr(default, "type", None)
        return f"`{chosen}`" if chosen else "its own defaults"
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, (list, tuple)):
        return "`[" + ", ".join(str(value) or '""' for value in default) + "]`"
    if isinstance(default, dict):
        written = {key: as_written(value) for key, value in default.items()}
        return f"`{json.dumps(written)}`".replace('"', "")
    return f'`"{default}"`' if default == "" or default in list(",;\"'") else f"`{default}`"


def as_written(value: Any) -> Any:
    """A value as YAML has it, without the defaults of its class."""
    if not isinstance(value, BaseModel):
        return value
    chosen = {"type": value.type} if hasattr(value, "type") else {}
    return {**chosen, **value.model_dump(mode="json", exclude_defaults=True)}


def cell(text: str) -> str:
    """Text that can stand in a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def table(fields: dict[str, FieldInfo]) -> str:
    """One row a key."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        shown = type_text(field.annotation, field.metadata) + limits(field.metadata)
        rows.append(
            f"| `{name}` | {cell(shown)} | {cell(default_text(field))} | {cell(field.description or '')} |"
        )
    return "\n".join(rows) + "\n"


def summary(cls: type[BaseModel]) -> str:
    """The first paragraph of a docstring."""
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def mentioned(annotation: Any, metadata: list[Any]) -> Iterator[Any]:
    """The classes and registries that the type of a key refers to."""
    yield from (item.registry for item in metadata if isinstance(item, OneOf))
    if get_origin(annotation) is Annotated:
        base, *more = get_args(annotation)
        yield from mentioned(base, more)
        return
    if any(isinstance(item, OneOf) for item in metadata):
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        if argument is not Ellipsis:
            yield from mentioned(argument, [])


COMMANDS_INTRODUCTION = """\
# Commands

<!-- Written by docs/generate_reference.py from the commands. Do not edit; run `make docs`. -->

Exit codes: 0 done, 1 failed while running, 2 wrong usage, configuration or input, 130 interrupted. Results go to
standard output, progress and messages to standard error. Every command has `--help`, and `--traceback`, which shows
where in the code an error happened.
"""


class Page:
    """Sections in the order in which a reader of the file meets them, each class and family once."""

    def __init__(self, introduction: str) -> None:
        self.parts = [introduction]
        self.seen: set[int] = set()

    def add(self, thing: Any) -> None:
        """Writes the section of a class or a family, then the sections of what it mentions."""
        if id(thing) in self.seen:
            return
        self.seen.add(id(thing))
        if isinstance(thing, Registry):
            self._add_family(thing)
        else:
            fields = {
                name: field
                for name, field in thing.model_fields.items()
                if not (name == "type" and tag(thing))
            }
            chosen = f"`type: {tag(thing)}`. " if tag(thing) else ""
            self.parts.append(f"## {title(thing)}\n\n{chosen}{summary(thing)}\n")
            self.parts.append(table(fields) if fields else "No keys of its own.\n")
            self._follow(thing)

    def _add_family(self, registry: Registry[Any]) -> None:
        base = registry.base
        rows = "\n".join(f"| `{part.name}` | {cell(part.summary)} |" for part in registry)
        self.parts.append(
            f"## {family_title(registry)}\n\n{summary(base)}\n\n| type | |\n|---|---|\n{rows}\n"
        )
        for names, fields in shared_keys(registry).items():
            who = "all" if list(names) == registry.names() else ", ".join(f"`{name}`" for name in names)
            self.parts.append(f"Keys of {who}:\n\n{table(fields)}")
        for part in registry:
            if fields := own_fields(part.config):
                self.parts.append(f"### {registry.kind} `{part.name}`\n\n{part.summary}\n\n{table(fields)}")
        self._follow(*(part.config for part in registry))

    def _follow(self, *classes: type[BaseModel]) -> None:
        for cls in classes:
            for field in cls.model_fields.values():
                for thing in mentioned(field.annotation, field.metadata):
                    self.add(thing)

    def text(self) -> str:
        """The whole page."""
        return "\n".join(self.parts)


def configuration() -> str:
    """The page on the configuration language."""
    page = Page(CONFIGURATION_INTRODUCTION)
    page.add(PipelineConfig)
    page.add(READERS)
    return page.text()


def service() -> str:
    """The page on the service."""
    page = Page(SERVING_INTRODUCTION)
    page.add(Settings)
    return page.text()


def commands() -> str:
    """The page on the command line; commands of other packages are not ours to describe."""
    return "\n".join([COMMANDS_INTRODUCTION, *(command_section(command) for command in own_commands())])


def command_section(lazy: LazyCommand) -> str:
    """One command, or a group and each of its commands."""
    command = lazy.load()
    members = getattr(command, "commands", {}).items()
    sections = [section(lazy.name, command, lazy.summary)]
    return "\n".join([*sections, *(section(f"{lazy.name} {name}", one, "") for name, one in members)])


def section(name: str, command: Any, summary: str) -> str:
    """One command: usage, what it does, its arguments and options."""
    shown = [parameter for parameter in command.params if parameter.name not in ("traceback", "help")]
    arguments = [parameter for parameter in shown if not parameter.opts[0].startswith("-")]
    options = [parameter for parameter in shown if parameter.opts[0].startswith("-")]
    names = [parameter.metavar or parameter.name.upper() for parameter in arguments]
    usage = " ".join(["easyrec", name, *(["[OPTIONS]"] if options else []), *names])
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(command.help or summary).split("\n\n")]
    rows = [
        f"| {cell(spelling(parameter))} | {cell(parameter.help or '')}{shown_default(parameter)} |"
        for parameter in shown
    ]
    head = ["| | |", "|---|---|"] if rows else []
    return "\n".join(
        [f"## easyrec {name}", "", f"    {usage}", "", "\n\n".join(paragraphs), "", *head, *rows, ""]
    )


def spelling(parameter: Any) -> str:
    """How an argument or option is written."""
    if not parameter.opts[0].startswith("-"):
        return f"`{parameter.metavar or parameter.name.upper()}`"
    spellings = [f"`{spelled}`" for spelled in (*parameter.opts, *parameter.secondary_opts)]
    value = "" if parameter.is_flag or not parameter.metavar else f" {parameter.metavar}"
    return ", ".join(spellings) + value


def shown_default(parameter: Any) -> str:
    """The default of an option that takes a value."""
    default = parameter.default
    if parameter.required or default in (None, "") or getattr(parameter, "is_flag", False):
        return ""
    return f" Default: `{default}`."


def pages() -> dict[Path, str]:
    """All generated pages: where each is kept, and what it says."""
    return {
        REFERENCE / "configuration.md": configuration(),
        REFERENCE / "commands.md": commands(),
        REFERENCE / "service.md": service(),
        SCHEMA: schema_text(),
    }


def main() -> None:
    """Writes the pages whose text has changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
