"""Colours of plots, and inline SVG that follows the page's light or dark colours."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT_SIZE = 10.0


@dataclass(frozen=True)
class Palette:
    """Colours by role.

    Attributes:
        ink: Text.
        muted: Axis labels and reference lines.
        rule: Grid and axes.
        accent: The model.
        reference: What the model is compared with.
        others: Further series, in order.
    """

    ink: str = "#1c2430"
    muted: str = "#5d6878"
    rule: str = "#d9dee6"
    accent: str = "#1f5fd0"
    reference: str = "#c2570c"
    others: tuple[str, ...] = field(default=("#0f8a7e", "#8a5cd0", "#7a8494", "#a98a2b", "#b0477f"))


PRINT = Palette()
"""Plain colours on white, for figures outside a report."""

# Placeholder colours, each replaced by a CSS variable: the drawing library knows no variables.
_VARIABLES = {
    "#010101": "--ink",
    "#010102": "--muted",
    "#010103": "--rule",
    "#010104": "--accent",
    "#010105": "--reference",
    "#010106": "--other-1",
    "#010107": "--other-2",
    "#010108": "--other-3",
    "#010109": "--other-4",
    "#01010a": "--other-5",
}
_CODES = list(_VARIABLES)
THEMED = Palette(_CODES[0], _CODES[1], _CODES[2], _CODES[3], _CODES[4], others=tuple(_CODES[5:]))
"""Placeholders that `inline_svg` turns into the page's colours."""


def new_figure(palette: Palette, width: float = 4.4, height: float = 3.1) -> tuple[Figure, Axes]:
    """An empty plot in the house style: no box, light grid, transparent background.

    Args:
        palette: Colours.
        width: In inches.
        height: In inches.

    Returns:
        The figure and its axes; no global state is touched.
    """
    from matplotlib.figure import Figure  # slow to import, and numbers are read without plots

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(palette.rule)
    axes.grid(color=palette.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=palette.rule, labelcolor=palette.muted, labelsize=FONT_SIZE - 1)
    axes.xaxis.label.set_color(palette.muted)
    axes.yaxis.label.set_color(palette.muted)
    axes.xaxis.label.set_fontsize(FONT_SIZE)
    axes.yaxis.label.set_fontsize(FONT_SIZE)
    return figure, axes


def plain_text(text: str) -> str:
    """A name as the drawing library shows it as it is: "$" starts no formula, a leading "_" hides no series."""
    escaped = text.replace("$", r"\$")
    return f"\u200b{escaped}" if escaped.startswith("_") else escaped


def few_ticks(axes: Axes, count: int, *, whole: bool = False) -> None:
    """At most `count` intervals between the ticks of the horizontal axis, at whole numbers if asked."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(count, integer=whole))


def legend(axes: Axes, palette: Palette, columns: int = 2) -> None:
    """A frameless legend under the plot."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=columns,
        frameon=False,
        fontsize=FONT_SIZE - 1,
        labelcolor=palette.muted,
        handlelength=1.6,
        columnspacing=1.2,
    )


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Draw a figure as an SVG element for an HTML page.

    Args:
        figure: A figure drawn with the `THEMED` palette.
        name: Letters and digits, unique on the page: keeps the ids of several drawings apart.
        label: What a screen reader says.

    Returns:
        The element, which scales to its container and takes colours and font from the page.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    # Text stays text, and the same figure gives the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's fonts draw the text, so a sign that the measuring font lacks is no loss.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for code, variable in _VARIABLES.items():
        svg = svg.replace(code, f"var({variable})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
