"""`${NAME}` in a configuration file becomes the value of an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping

from easyrec.errors import nearest

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{")


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Replaces `${NAME}` and `${NAME:-default}`; `$${` stands for `${` itself.

    Args:
        text: Text of a scalar.
        environment: The variables. As in the shell, a default stands in for one that is unset or empty.

    Raises:
        ValueError: A variable is not set and has no default, or a reference is not written as above.
    """
    return _REFERENCE.sub(lambda match: _value(match, text, environment), text) if "${" in text else text


def _value(match: re.Match[str], text: str, environment: Mapping[str, str]) -> str:
    if match[0] == "$${":
        return "${"
    name, default = match["name"], match["default"]
    if name is None:
        raise ValueError(
            f"in {text!r}, `${{` starts no ${{NAME}} or ${{NAME:-default}}; write `$${{` for the signs"
        )
    value = environment.get(name)
    if default is not None:
        return value or default
    if value is None:
        raise ValueError(
            f"the environment variable {name} is not set.{_close(name, environment)} "
            f"Set it, or give a default: ${{{name}:-default}}"
        )
    return value


def _close(name: str, environment: Mapping[str, str]) -> str:
    """A near name; never a list of all variables, which says nothing and may tell secrets."""
    hint = nearest(name, environment)
    return hint if "Did you mean" in hint else ""


def escape(text: str) -> str:
    """Writes text so that `substitute` gives it back."""
    return text.replace("${", "$${")
