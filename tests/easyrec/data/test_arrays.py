import os
import resource

import numpy as np
import pytest

from easyrec.data.arrays import create_array


@pytest.mark.parametrize("length", [0, 1, 100_000])
def test_zeros_that_can_be_written_in_any_order(tmp_path, monkeypatch, length):
    for name in ("reserved", "written"):
        if name == "written":  # as where space cannot be reserved
            monkeypatch.delattr(os, "posix_fallocate", raising=False)
        array = create_array(tmp_path / name, np.int32, length)
        array[length // 2 : length // 2 + 1] = 7
        array.flush()
        expected = np.zeros(length, np.int32)
        expected[length // 2 : length // 2 + 1] = 7
        np.testing.assert_array_equal(np.load(tmp_path / name), expected)
        assert (tmp_path / name).stat().st_blocks * 512 >= length * 4


def test_a_disk_without_room_is_an_error_at_once(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            create_array(tmp_path / "array.npy", np.int64, 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
