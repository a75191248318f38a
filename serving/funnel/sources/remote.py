"""A source behind HTTP: another team's service, in any language."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import httpx
import numpy as np
from pydantic import Field

from easyrec.errors import ConfigError, EasyRecError
from serving.funnel.candidates import Found
from serving.funnel.query import Query
from serving.funnel.stages import Resources, SourceConfig

MAX_BYTES = 4 << 20
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]


class HttpConfig(SourceConfig):
    """Candidates of another service, asked by POST with JSON.

    It gets `{request_id, scene, user_id, session_id, n, recent: [item keys, latest first], context}` and answers
    `{"items": [{"item_id": ..., "score": ...}]}`, best first; a plain list of keys will do.
    """

    type: Literal["http"] = "http"
    url: str = Field(pattern=r"^https?://[^\s/]\S*$")
    """Where it is."""
    headers: dict[HeaderName, str] = Field(default_factory=dict)
    """Sent along, such as an authorization; write secrets as `${NAME}`."""
    last: int = Field(10, ge=0, le=100)
    """How many of the person's latest items it is told."""


class Http:
    """See `HttpConfig`."""

    remote: ClassVar[bool] = True

    def __init__(self, config: HttpConfig, resources: Resources) -> None:
        self._config = config
        try:
            self._client = httpx.Client(
                headers=config.headers, timeout=config.deadline_ms / 1000, follow_redirects=False
            )
        except UnicodeError as error:  # the value is not told: it may be a secret
            raise ConfigError(f"a header for {config.url} has characters that none can have") from error

    def find(self, query: Query) -> Found:
        """What the service answers.

        Raises:
            EasyRecError: It does not answer, or not in the form described.
        """
        config = self._config
        recent = query.recent[: config.last]
        body = {
            "request_id": query.trace.request_id,
            "scene": query.trace.scene,
            "user_id": query.person.user_id,
            "session_id": query.person.session_id,
            "n": config.n,
            "recent": query.catalogue.ids.take(recent) if len(recent) else [],
            "context": dict(query.person.context),
        }
        try:
            with self._client.stream("POST", config.url, json=body) as answer:
                answer.raise_for_status()
                text = b""
                for part in answer.iter_bytes():
                    text += part
                    if len(text) > MAX_BYTES:
                        raise EasyRecError(f"{config.url} answers with more than {MAX_BYTES} bytes")
            keys, scores = _parsed(httpx.Response(200, content=text).json())
        except (httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise EasyRecError(f"{config.url}: {type(error).__name__}: {error}") from error
        return Found(query.catalogue.rows(keys), scores)


def _parsed(answer: Any) -> tuple[list[Any], np.ndarray]:
    items = answer["items"] if isinstance(answer, dict) else answer
    if not isinstance(items, list):
        raise TypeError("expected a list of items")
    keys = [item["item_id"] if isinstance(item, dict) else item for item in items]
    given = [item.get("score") if isinstance(item, dict) else None for item in items]
    scores = [-float(place) if score is None else float(score) for place, score in enumerate(given)]
    return keys, np.asarray(scores, np.float32)


MEMBERS = (("http", HttpConfig, Http),)
