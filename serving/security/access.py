"""Which scope a request needs. What is not listed needs `admin`, so that nothing new is open by accident."""

from __future__ import annotations

from serving.security.keys import Scope

READING_POSTS = ("/v1/recommend", "/v1/rank")
READING_SUFFIXES = (":predict",)
WRITABLE = ("/v1/events", "/v1/items", "/v1/users")
METRICS = "/metrics"
PAGE = "/ui"
PAGE_DATA = "/ui/data"
OPEN = ("/health", "/docs", "/openapi.json", PAGE)
"""Answered without a key; the page holds no data, what it shows it asks for with the key that is typed in."""


def required_scope(method: str, path: str, open_metrics: bool = False) -> Scope | None:
    """The scope that a request needs; None if it needs none.

    Args:
        method: HTTP method.
        path: Decoded path.
        open_metrics: Whether metrics need none.
    """
    if _under(path, PAGE_DATA):
        return "admin"
    if any(_under(path, prefix) for prefix in OPEN) or path == "/":
        return None
    if path == METRICS:
        return None if open_metrics else "read"
    if not _under(path, "/v1"):
        return "admin"
    if method in ("GET", "HEAD"):
        return "read"
    if method == "POST" and (path in READING_POSTS or path.endswith(READING_SUFFIXES)):
        return "read"
    if any(_under(path, prefix) for prefix in WRITABLE):
        return "write"
    return "admin"


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
