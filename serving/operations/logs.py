"""Log lines as JSON objects, or as text to read; each with the id of its request."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from serving.operations.request_ids import current_request_id
from serving.operations.settings import OperationSettings

FIELDS = "fields"
"""Name under which `extra` holds further fields of a line."""
_QUIET = {"httpx": logging.WARNING, "httpcore": logging.WARNING, "watchfiles": logging.WARNING}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `request_id` and what the line adds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = current_request_id()
        if request_id is not None:
            line["request_id"] = request_id
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextFormatter(logging.Formatter):
    """A line to read."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; line feeds of a message are shown as signs, so that nobody can make up a line."""
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        more = "".join(f" {name}={value}" for name, value in _fields(record).items())
        request_id = current_request_id()
        where = f" [{request_id}]" if request_id is not None else ""
        line = f"{time} {record.levelname.lower():7} {message}{more}{where}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure_logs(settings: OperationSettings) -> None:
    """Sends all log lines of the process to standard error in the form wanted.

    Args:
        settings: Form and level.
    """
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, root.level))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = getattr(record, FIELDS, None)
    return fields if isinstance(fields, Mapping) else {}
