"""TensorFlow starts without a word; what is not its log passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from easyrec.startup import quiet_records, worth_showing

ROOT = Path(__file__).parents[2]
NOTICE = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
INFO = "I0000 00:00:1796033405.012392   31076 port.cc:153] oneDNN custom operations are on.\n"
OLD_INFO = (
    "2026-01-01 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is ...\n"
)
NO_DRIVER = (
    "E0000 00:00:1796033419.846705   31235 cuda_platform.cc:52] failed call to cuInit: UNKNOWN ERROR (303)\n"
)
ERROR = "E0000 00:00:1796033419.846705   31235 somewhere.cc:1] the disk is full\n"


@pytest.mark.parametrize("public", ["easyrec.load", "from easyrec import train"])
def test_the_first_use_of_tensorflow_is_quiet(public):
    program = f"import easyrec\n{public}\nimport tensorflow as tf\ntf.linalg.matmul([[1.0]], [[1.0]])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_records_below_errors_are_kept_back(tmp_path):
    text = [NOTICE, INFO, OLD_INFO, NO_DRIVER, ERROR, "Traceback: something else\n"]
    assert list(worth_showing(text, driver=tmp_path / "absent")) == [ERROR, "Traceback: something else\n"]


def test_a_driver_that_fails_is_shown_where_there_is_one(tmp_path):
    assert list(worth_showing([NO_DRIVER], driver=tmp_path)) == [NO_DRIVER]


def test_what_is_written_meanwhile_arrives_even_when_the_block_fails(capfd):
    def fail():
        with quiet_records():
            os.write(2, (INFO + ERROR).encode())
            raise ImportError("no such library")

    with pytest.raises(ImportError):
        fail()
    os.write(2, b"afterwards\n")
    assert sorted(capfd.readouterr().err.splitlines(keepends=True)) == sorted([ERROR, "afterwards\n"])
