"""Names for users and sessions that nobody without a key can trace back, for exposure logs. Standard library only.

A pseudonym is HMAC-SHA256, under the key, of the id's SHA-256. Erasures know a user by that SHA-256 alone, so they find
the rows of a keyed log too; and with the key the analysis gives events the same names.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any

from evaluation.errors import EvaluationError

KEY = "EASYREC_EXPOSURE_KEY"
"""The variable of the environment that holds the key."""
PREFIX = "hmac-"
_DIGITS, _MARK = 32, 4
_SHORTEST = 16
_BLOCK = 64
_PERSONS = ("user_id", "session_id", "device_id", "visitor")


def digest(identifier: Any) -> str:
    """The SHA-256 of an id's text, in hexadecimal."""
    return hashlib.sha256(str(identifier).encode("utf-8", "surrogatepass")).hexdigest()


class Pseudonyms:
    """Names under one key.

    Args:
        key: Secret text.

    Raises:
        EvaluationError: The key is so short that it can be guessed.
    """

    def __init__(self, key: str) -> None:
        if len(key) < _SHORTEST:
            raise EvaluationError(
                f"The key in ${KEY} has {len(key)} characters; take at least {_SHORTEST}, such as the output of "
                "`openssl rand -hex 32`."
            )
        self._key = key.encode("utf-8", "surrogatepass")
        mark = hmac.new(self._key, b"mark of the key", hashlib.sha256).hexdigest()[:_MARK]
        self.prefix = f"{PREFIX}{mark}-"
        """How all names under this key begin, so that those of another key are known as such."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Pseudonyms | None":
        """Of the key in the environment; None if there is none."""
        key = environment.get(KEY)
        return None if not key else cls(key)

    def of(self, identifier: Any) -> str:
        """The name of an id."""
        return self.of_digest(digest(identifier))

    def of_digest(self, hashed: str) -> str:
        """The name of an id of which only the SHA-256 is known."""
        return self.prefix + hmac.new(self._key, hashed.encode(), hashlib.sha256).hexdigest()[:_DIGITS]

    def hide(self, row: dict[str, Any]) -> dict[str, Any]:
        """An exposure row without ids of persons; requests and time slots keep theirs."""
        hidden = {name: self.of(row[name]) for name in ("user_id", "session_id") if row.get(name) is not None}
        if row["unit_type"] in _PERSONS:
            hidden["unit_id"] = self.of(row["unit_id"])
        return {**row, **hidden}

    @staticmethod
    def hides(unit: str) -> bool:
        """Whether units of a kind get other names."""
        return unit in _PERSONS

    def sql(self, text: str, *, spark: bool = False) -> str:
        """An expression for the name of a column of texts, in the SQL of DuckDB or of Spark."""
        key = hashlib.sha256(self._key).digest() if len(self._key) > _BLOCK else self._key
        inner, outer = (bytes(one ^ pad for one in key.ljust(_BLOCK, b"\0")).hex() for pad in (0x36, 0x5C))
        if spark:
            first = f"sha2(concat(unhex('{inner}'), encode(sha2({text}, 256), 'UTF-8')), 256)"
            return f"concat('{self.prefix}', left(sha2(concat(unhex('{outer}'), unhex({first})), 256), {_DIGITS}))"
        first = f"sha256(unhex('{inner}') || encode(sha256({text})))"
        return f"'{self.prefix}' || left(sha256(unhex('{outer}') || unhex({first})), {_DIGITS})"
