"""A process that serves the known model: `python known_server.py FOLDER PORT`, with settings from the environment.

It starts in a second, because TensorFlow is not needed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import uvicorn

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import serving.service  # noqa: E402 the path must come first
from serving.app import create_app  # noqa: E402
from serving.settings import load_settings  # noqa: E402


def main(folder: Path, port: int) -> None:
    spec = importlib.util.spec_from_file_location("known_world", ROOT / "tests" / "serving" / "world.py")
    if spec is None or spec.loader is None:
        raise SystemExit("the world of films is not here")
    world = sys.modules["known_world"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(world)

    def load(path: Path, **_: Any) -> Any:
        return world.KnownModel(folder / path.name, path.name)

    serving.service.load_served_model = load  # type: ignore[assignment]
    serving.service.find_bundle = lambda path: path  # type: ignore[assignment]
    app = create_app(load_settings(given={"models": ["films"], "data": str(folder / "data")}))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
