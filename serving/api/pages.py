"""What browsers are told of pages that the service sends."""

from __future__ import annotations


def page_headers(*allowed: str) -> dict[str, str]:
    """Headers of a page that is in no frame, posts nowhere, and loads only what the directives in `allowed` name."""
    directives = [
        "default-src 'none'",
        *allowed,
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "Content-Security-Policy": "; ".join(directives),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
