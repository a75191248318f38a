"""The page on operating the service lists every setting, with its default and its meaning."""

from __future__ import annotations

import pytest

from serving.operations.settings import OperationSettings
from serving.security.settings import SecuritySettings
from tests.serving.application import ROOT

PAGE = ROOT / "docs" / "how_to" / "operate_the_service.md"


def shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    ("section", "kind"), [("security", SecuritySettings), ("operations", OperationSettings)]
)
def test_every_setting_is_listed(section, kind):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if line.startswith(f"| `{section}.")]
    assert listed == [
        f"| `{section}.{name}` | {shown(field.default)} | {' '.join(field.description.split())} |"
        for name, field in kind.model_fields.items()
    ]
