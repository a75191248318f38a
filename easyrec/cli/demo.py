"""`easyrec demo`: real films, two models, recommendations by title."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easyrec.cli.common import INTERRUPTED, messages, note, output
from easyrec.startup import start_tensorflow

if TYPE_CHECKING:
    from evaluation.report import Example


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Where data and runs are written.")
    ] = Path("demo"),
) -> None:
    """Train a two-tower model and a DeepFM on 100,000 real film ratings and recommend films by title.

    The ratings (MovieLens) come with an installed package; nothing is downloaded. Takes a few minutes.
    """
    start_tensorflow()
    from easyrec.cli.progress import TrainingProgress
    from easyrec.demo.films import run_demo

    console, start = messages(), time.monotonic()
    bars: list[TrainingProgress] = []

    def callbacks() -> list[TrainingProgress]:
        bars.append(TrainingProgress(console))
        return bars[-1:]

    def tell(text: str) -> None:
        console.print(f"{time.monotonic() - start:5.0f} s  {text}", markup=False)

    try:
        result = run_demo(folder, tell, callbacks)
    except KeyboardInterrupt:
        note("interrupted; the same command begins again, and replaces what it has written")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for bar in bars:
            bar.close()
    tell("done")
    out = output()
    out.print()
    out.print(str(result.ranking), markup=False)
    for example in result.examples:
        _show(example)
    ranker, retriever = result.ranker.folder.directory, result.retriever.folder.directory
    out.print()
    out.print(f"report  {result.page}", markup=False)
    out.print(
        f"bundle  {ranker / 'bundle'}  (ranks), {retriever / 'bundle'}  (finds candidates)", markup=False
    )
    out.print(f"log     {result.ranker.folder.log}", markup=False)
    out.print()
    program = _program()
    out.print("Try next:")
    user = result.examples[0].user if result.examples else "1"
    config = ranker / "config.yaml"
    out.print(f"  {program} recommend {ranker} --with {retriever} --user {user}", markup=False)
    out.print(f"  {program} serve {ranker} --retriever {retriever}", markup=False)
    out.print(
        f"  {program} train {config} --set model.type=dcn_v2 --run {ranker.parent / 'dcn-v2'}", markup=False
    )


def _program() -> str:
    """How to call the program from where the user is: by name when the shell finds it, else by its path."""
    return "easyrec" if shutil.which("easyrec") else sys.argv[0]


def _show(example: Example) -> None:
    out = output()
    out.print()
    out.print(f"User {example.user} liked last: {'; '.join(example.history)}", markup=False)
    for position, title in enumerate(example.recommended, start=1):
        out.print(f"  {position:2}  {title}", markup=False)
