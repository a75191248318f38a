"""Families of interchangeable parts, and how a package outside joins them.

A part has a name (the `type:` of the YAML), a configuration class (validated without TensorFlow) and an
implementation, given as a class or function, or as "package.module:attribute" so that nothing heavy is imported
before it is needed. A package of a user registers its parts when it is imported, either because an entry point of
the group `easyrec.plugins` names it or because the configuration lists it under `plugins:`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from easyrec.errors import ConfigError, nearest

ConfigT = TypeVar("ConfigT")

PLUGIN_GROUP = "easyrec.plugins"


@dataclass(frozen=True)
class Part(Generic[ConfigT]):
    """One registered member of a family."""

    name: str
    config: type[ConfigT]
    implementation: Any
    summary: str

    def load(self) -> Any:
        """The implementation itself, imported now if it was given as "package.module:attribute".

        Raises:
            ConfigError: The module or the attribute is not there.
        """
        if not isinstance(self.implementation, str):
            return self.implementation
        module_name, _, attribute = self.implementation.partition(":")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"the implementation {self.implementation!r} of {self.name!r} cannot be imported: {error}"
            ) from error


class Registry(Generic[ConfigT]):
    """The members of one family (features, models, losses, ...), by name."""

    def __init__(self, kind: str, base: type[ConfigT]) -> None:
        self.kind = kind
        self.base = base
        self._parts: dict[str, Part[ConfigT]] = {}

    def register(self, name: str, config: type[ConfigT], implementation: Any) -> None:
        """Adds a member; its summary is the first line of the configuration class's docstring.

        Args:
            name: The value of `type:` that selects it.
            config: A subclass of the family's base configuration class.
            implementation: A class or function, or "package.module:attribute".

        Raises:
            ConfigError: The name is taken by another class, or `config` is not of the family.
        """
        known = self._parts.get(name)
        if known is not None and known.config is not config:
            raise ConfigError(
                f"the {self.kind} {name!r} is registered already, by {known.config.__module__}; choose another name"
            )
        if not issubclass(config, self.base):
            raise ConfigError(
                f"the configuration class {config.__name__} of the {self.kind} {name!r} must derive from "
                f"{self.base.__name__}"
            )
        summary = (config.__doc__ or "").strip().splitlines()
        self._parts[name] = Part(name, config, implementation, summary[0] if summary else "")

    def unregister(self, name: str) -> None:
        """Removes a member; for tests of plug-ins."""
        self._parts.pop(name, None)

    def __getitem__(self, name: str) -> Part[ConfigT]:
        if name not in self._parts:
            raise ConfigError(f"unknown {self.kind} {name!r}.{self.hint(name)}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[Part[ConfigT]]:
        return iter(sorted(self._parts.values(), key=lambda part: part.name))

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._parts)

    def hint(self, name: str) -> str:
        """What to say after "unknown ... `name`": the nearest name, and plug-ins that may have had it."""
        broken = "".join(f" Also, {message}." for message in _broken.values())
        return f"{nearest(name, self._parts)}{broken}"

    def build(self, config: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the implementation that `config.type` selects: `implementation(config, *args, **kwargs)`."""
        return self[config.type].load()(config, *args, **kwargs)


_broken: dict[str, str] = {}


def broken_plugins() -> dict[str, str]:
    """Plug-ins of installed packages that could not be loaded: what went wrong, by name."""
    return dict(_broken)


def load_plugins(modules: tuple[str, ...] = ()) -> list[str]:
    """Imports the plug-ins of installed packages and those that a configuration names.

    A plug-in of an installed package that cannot be loaded is left out and kept in `broken_plugins`, because this
    configuration may not need it; names that turn out to be unknown are reported together with it.

    Args:
        modules: Module names from `plugins:` of a configuration.

    Returns:
        The names of the modules imported.

    Raises:
        ConfigError: One of `modules` cannot be imported; the message names it and the reason.
    """
    loaded = []
    for entry_point in entry_points(group=PLUGIN_GROUP):
        try:
            entry_point.load()
        except Exception as error:  # noqa: BLE001 a foreign module may fail in any way
            package = entry_point.dist.name if entry_point.dist else "an installed package"
            _broken[entry_point.name] = (
                f"the plug-in {entry_point.name!r} of {package} ({entry_point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            )
        else:
            _broken.pop(entry_point.name, None)
            loaded.append(entry_point.value)
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(
                f"the module {module!r} cannot be imported: {type(error).__name__}: {error}. "
                "Is its package installed in this environment, or its folder on PYTHONPATH?"
            ) from error
        loaded.append(module)
    return loaded
