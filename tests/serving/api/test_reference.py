"""`/docs`: all of the API on one page, which needs no network."""

from __future__ import annotations

import re

from serving.api.reference import reference
from tests.serving.application import known_keys, make_app, running


def test_every_operation_and_field_is_on_the_page_and_nothing_is_loaded_from_elsewhere(tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as client:
        page, style = client.get("/docs"), client.get("/docs/page.css")
        assert client.get("/redoc").status_code == 401
    assert page.status_code == style.status_code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "<script" not in page.text
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page.text)) == {"/docs/page.css", "/openapi.json", "/ui"}
    document = app.openapi()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f'<span class="method">{method.upper()}</span>{path}' in page.text
    for field in document["components"]["schemas"]["RecommendBody"]["properties"]:
        assert f"<tr><td>{field}</td>" in page.text
    assert "<tr><td>rejected.reason</td><td>string, required</td>" in page.text


def test_text_of_the_document_is_text_on_the_page():
    answers = {"200": {"description": "<b>", "content": {"application/json": {"schema": {"type": "array"}}}}}
    operation = {"description": "1 < 2 & <script> `a<b`", "responses": answers}
    page = reference(
        {
            "info": {"title": "<i>", "version": "1"},
            "paths": {"/x": {"get": operation, "summary": "no operation"}},
        }
    )
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "1 &lt; 2 &amp; &lt;script&gt;" in page
    assert "<code>a&lt;b</code>" in page
    assert "list of any" in page


def test_a_schema_that_holds_itself_ends():
    tree = {"properties": {"child": {"$ref": "#/components/schemas/Tree"}, "name": {"type": "string"}}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tree"}}}}
    page = reference(
        {
            "info": {"title": "t", "version": "1"},
            "components": {"schemas": {"Tree": tree}},
            "paths": {"/x": {"post": {"requestBody": body, "responses": {}}}},
        }
    )
    assert page.count("<tr><td>child</td>") == 1
