"""`/docs`: the API as a page, made of the OpenAPI document. It has no script and asks the network for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response

from serving.api.pages import page_headers

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
section { border-top: 1px solid #ddd; padding: 0.5rem 0 }
h2 { font-size: 1rem; margin: 0.5rem 0; font-family: ui-monospace, monospace; overflow-wrap: anywhere }
.method { display: inline-block; min-width: 4rem; color: #06c }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #eee }
code, td:first-child { font-family: ui-monospace, monospace; font-size: 0.9em }
p { margin: 0.3rem 0; white-space: pre-line }
summary { cursor: pointer; color: #555 }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd } section, td, th { border-color: #444 } .method { color: #7bf }
  summary { color: #aaa } a { color: #7bf }
}
"""
_HEADERS = page_headers("style-src 'self'")

router = APIRouter(prefix="/docs", include_in_schema=False)


def install_reference(app: FastAPI) -> None:
    """Adds the page to an application that was made with `docs_url=None`."""
    app.include_router(router)


@router.get("")
async def page(request: Request) -> Response:
    """The page."""
    content = reference(request.app.openapi())
    return Response(content, headers=_HEADERS, media_type="text/html; charset=utf-8")


@router.get("/page.css")
async def style() -> Response:
    """How it looks."""
    return Response(_STYLE, headers=_HEADERS, media_type="text/css; charset=utf-8")


def reference(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    schemas = document.get("components", {}).get("schemas", {})
    title = f"{document['info']['title']} {document['info']['version']}"
    sections = "\n".join(
        _section(method, path, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, Mapping) and "responses" in operation
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/docs/page.css"></head>'
        f"<body><h1>{escape(title)}</h1><p>{escape(document['info'].get('description', ''))} The same for programs: "
        f'<a href="/openapi.json">openapi.json</a>. To try it out: <a href="/ui">the page</a>.</p>{sections}'
        "</body></html>"
    )


def _section(
    method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]
) -> str:
    parts = [f'<h2><span class="method">{method.upper()}</span>{escape(path)}</h2>']
    described = escape(operation.get("description") or operation.get("summary", ""))
    described = _CODE.sub(r"<code>\1</code>", described)
    parts.append(f"<p>{described}</p>")
    parameters = [
        (one["name"], _type(one.get("schema", {})), one.get("required", False), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    parts.append(_table(f"In the {'path' if '{' in path else 'query'}", parameters))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        parts.append(_fields("Body", body, schemas))
    answers = []
    for status, response in operation["responses"].items():
        content: Mapping[str, Any] = next(
            (one.get("schema", {}) for one in response.get("content", {}).values()), {}
        )
        answers.append((status, _type(content), False, response.get("description", "")))
        if status == "200":
            parts.append(_fields("Answer", content, schemas))
    parts.append(_table("Statuses", answers))
    return f"<section>{''.join(parts)}</section>"


def _fields(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """The fields of an object, of those within it, too."""
    rows = list(_rows("", schema, schemas, frozenset()))
    return _table(f"{name}: {_type(schema)}", rows)


def _rows(
    prefix: str, schema: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], within: frozenset[str]
) -> Iterator[tuple[str, str, bool, str]]:
    name = _reference(schema)
    if name is None:
        for inner in (schema.get("items"), *schema.get("anyOf", ())):
            if isinstance(inner, Mapping):
                yield from _rows(prefix, inner, schemas, within)
        return
    if name in within or name not in schemas:
        return
    found = schemas[name]
    for field, one in found.get("properties", {}).items():
        path = f"{prefix}{field}"
        yield path, _type(one), field in found.get("required", ()), one.get("description", "")
        yield from _rows(f"{path}.", one, schemas, within | {name})


def _type(schema: Mapping[str, Any]) -> str:
    """What a value is, in a word or two."""
    name = _reference(schema)
    if name is not None:
        return name
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS if key in schema]
    return " ".join([str(schema.get("type", "any")), f"({', '.join(limits)})" if limits else ""]).strip()


_CODE = re.compile(r"`([^`]+)`")
_LIMITS = (("minimum", "from"), ("maximum", "to"), ("maxLength", "at most"), ("pattern", "like"))


def _reference(schema: Mapping[str, Any]) -> str | None:
    found = schema.get("$ref")
    return None if found is None else str(found).rsplit("/", 1)[-1]


def _table(title: str, rows: Iterable[tuple[str, str, bool, str]]) -> str:
    lines = [
        f"<tr><td>{escape(name)}</td><td>{escape(kind)}{', required' if required else ''}</td>"
        f"<td>{escape(described)}</td></tr>"
        for name, kind, required, described in rows
    ]
    if not lines:
        return ""
    return f"<details><summary>{escape(title)}</summary><table>{''.join(lines)}</table></details>"
