"""The configuration language as JSON Schema, and a resolved configuration as YAML."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import TypeAdapter

from easyrec.config.base import FAMILY_KEY
from easyrec.config.data import READERS
from easyrec.config.environment import escape
from easyrec.config.features import FEATURES
from easyrec.config.models import MODELS
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import LOSSES, TASKS
from easyrec.config.yaml_reader import plain_value
from easyrec.registry import Registry

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_FAMILIES: dict[str, Registry[Any]] = {
    registry.kind: registry for registry in (FEATURES, MODELS, TASKS, LOSSES, READERS)
}
_VARIABLE = "environment_variable"
_SCALARS = ("integer", "number", "boolean")
_REFERENCE = "#/$defs/"

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a configuration file, with all parts registered now.

    Short forms (`user_id: id`), `include`, `defaults` and `${NAME}` are part of it, so an editor accepts what the
    loader accepts as far as a schema can say it.
    """
    builder = _Builder()
    root = builder.add(PipelineConfig.model_json_schema())
    required = root.pop("required")
    for entries in ("features", "tasks"):
        values = root["properties"][entries]["additionalProperties"]
        values["anyOf"].append({"type": "null", "description": "Removes an entry that an included file has."})
        root["properties"][entries].pop("minProperties", None)
    root["properties"] |= {"include": _include(), "defaults": builder.defaults()}
    return {
        "$schema": DIALECT,
        "title": "EasyRec pipeline",
        **root,
        "anyOf": [{"required": ["include"]}, {"required": required}],
        "$defs": dict(sorted(builder.definitions.items())),
    }


def schema_text() -> str:
    """`json_schema` as indented JSON, ending in a line break."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _include() -> Schema:
    names: Schema = {"type": "string", "minLength": 1}
    return {
        "description": "Files, relative to this one, whose content comes before it; what comes later wins.",
        "anyOf": [names, {"type": "array", "items": names}],
    }


class _Builder:
    """Collects definitions, and puts references to the members of a family where the family is used."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {
            _VARIABLE: {
                "type": "string",
                "pattern": r"\$\{",
                "description": "The value of an environment variable: ${NAME} or ${NAME:-default}.",
            }
        }

    def add(self, schema: Schema) -> Schema:
        """A schema as pydantic made it, in the form published; its definitions are kept."""
        for name, definition in schema.pop("$defs", {}).items():
            if name not in self.definitions:
                self.definitions[name] = {}  # taken, in case it refers to itself
                self.definitions[name] = self._published(definition)
        published: Schema = self._published(schema)
        return published

    def defaults(self) -> Schema:
        """The block `defaults`: for each family, the options of all its members."""
        families = {}
        for name, registry in (("features", FEATURES), ("tasks", TASKS)):
            options: Schema = {}
            for part in registry:
                members = self.definitions[self._member(registry, part.name)]["properties"]
                for option, schema in members.items():
                    if option != "type" and schema not in options.setdefault(option, []):
                        options[option].append(schema)
            properties = {
                option: found[0] if len(found) == 1 else {"anyOf": found}
                for option, found in sorted(options.items())
            }
            families[name] = {
                "description": f"Options for all {name} that have them and do not give them.",
                "type": "object",
                "additionalProperties": False,
                "properties": properties,
            }
        return {
            "description": "Options that many entries share.",
            "type": "object",
            "additionalProperties": False,
            "properties": families,
        }

    def _published(self, schema: Any) -> Any:
        """Without pydantic's titles and empty defaults; families and variables filled in."""
        if isinstance(schema, list):
            return [self._published(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        if FAMILY_KEY in schema:
            rest = {key: value for key, value in schema.items() if key not in (FAMILY_KEY, "default")}
            return {**rest, "anyOf": self._members(_FAMILIES[schema[FAMILY_KEY]])}
        kept: Schema = {}
        for key, value in schema.items():
            if key == "title" or (key == "default" and value is None):
                continue
            if key in ("properties", "patternProperties"):
                kept[key] = {name: self._published(item) for name, item in value.items()}
            elif key in ("default", "enum", "const", "examples"):
                kept[key] = value
            elif key == "discriminator":
                continue  # of OpenAPI, no part of JSON Schema
            else:
                kept[key] = self._published(value)
        return self._or_variable(kept)

    def _or_variable(self, schema: Schema) -> Schema:
        """A scalar may be given as `${NAME}` too."""
        if schema.get("type") not in _SCALARS and "enum" not in schema:
            return schema
        outside: Schema = {key: schema.pop(key) for key in ("description", "default") if key in schema}
        return {**outside, "anyOf": [schema, {"$ref": _REFERENCE + _VARIABLE}]}

    def _members(self, registry: Registry[Any]) -> list[Schema]:
        references = [{"$ref": _REFERENCE + self._member(registry, part.name)} for part in registry]
        simple = [
            part.name
            for part in registry
            if not any(
                field.is_required() for name, field in part.config.model_fields.items() if name != "type"
            )
        ]
        return [*references, {"enum": simple, "description": f"A {registry.kind} with default options."}]

    def _member(self, registry: Registry[Any], name: str) -> str:
        """The key of a member among the definitions."""
        key = f"{registry.kind.replace(' ', '_')}.{name}"
        if key not in self.definitions:
            self.definitions[key] = {}
            config = registry[name].config
            schema = self.add(config.model_json_schema(ref_template=_REFERENCE + "{model}"))
            schema["properties"]["type"] = {"const": name, "description": registry[name].summary}
            schema["required"] = [
                "type",
                *(option for option in schema.get("required", ()) if option != "type"),
            ]
            self.definitions[key] = schema
        return key


# ------------------------------------------------------------------------------------------------------------ YAML


class _Dumper(yaml.SafeDumper):
    """Writes what `yaml_reader` reads back: text that would read as a number, a bool or null is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal values are written out each time."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    if not text.isprintable():  # line breaks of all kinds are folded anywhere but in double quotes
        style: str | None = '"'
    else:
        style = None if isinstance(plain_value(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def resolved_yaml(config: PipelineConfig) -> str:
    """A configuration with every default filled in, as YAML that loads to an equal configuration.

    The order is that of the configuration classes, entries in the order they were given; `${` in text is escaped.
    """
    data = _escaped(TypeAdapter(PipelineConfig).dump_python(config, mode="json"))
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _escaped(value: Any) -> Any:
    """Values with `${` escaped; keys are never substituted."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return escape(value) if isinstance(value, str) else value
