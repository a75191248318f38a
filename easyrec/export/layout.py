"""Where the parts of a bundle lie, and how one is found. Imports no TensorFlow.

manifest.json      what it is, and the checksum of every file
config.yaml        the resolved configuration
model/             SavedModel; loads without this package, in TensorFlow Serving too
features/          vocabularies and statistics
candidates/        the catalogue, popularity, neighbours, item vectors
users/             latest columns, histories and seen items of each user, if `export.users`
examples/          raw rows with their scores
litert/            the model for LiteRT, if `export.litert`
"""

from __future__ import annotations

from pathlib import Path

from easyrec.errors import BundleError, nearest
from easyrec.export.manifest import MANIFEST

CONFIG, MODEL, FEATURES, CANDIDATES, EXAMPLES = "config.yaml", "model", "features", "candidates", "examples"
USERS = "users/users.parquet"
MAPPED_USERS = "users/users"
LITERT = "litert"
RUN_BUNDLE = "bundle"


def find_bundle(path: str | Path) -> Path:
    """The folder of a bundle, given that folder or the run it belongs to.

    Raises:
        BundleError: There is none.
    """
    path = Path(path)
    for folder in (path, path / RUN_BUNDLE):
        if (folder / MANIFEST).is_file():
            return folder
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise BundleError(
            f"{path} does not exist; give the folder of a run or of a bundle.{nearest(path.name, siblings)}"
        )
    if (path / CONFIG).is_file():
        raise BundleError(f"the run {path} has no bundle yet; make one with `easyrec export {path}`")
    raise BundleError(
        f"{path} is neither a bundle (it holds no {MANIFEST}) nor a run with one in {path / RUN_BUNDLE}"
    )
