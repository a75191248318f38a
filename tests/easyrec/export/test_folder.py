"""A folder is replaced in one step, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from easyrec.errors import BundleError
from easyrec.export import folder as folder_module
from easyrec.export.folder import replace_folder


def write(target: Path, text: str) -> None:
    with replace_folder(target) as writing:
        (writing / "inner").mkdir()
        (writing / "inner" / "file.txt").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_creates_parents_and_leaves_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a" / "bundle", "first")
    assert (tmp_path / "a" / "bundle" / "inner" / "file.txt").read_text() == "first"
    assert names(tmp_path / "a") == ["bundle"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_replaces_the_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(folder_module, "_exchange", lambda first, second: False)
    target = tmp_path / "bundle"
    write(target, "first")
    (target / "old").write_text("")
    write(target, "second")
    assert (target / "inner" / "file.txt").read_text() == "second"
    assert names(target) == ["inner"]
    assert names(tmp_path) == ["bundle"]


def test_an_error_while_writing_keeps_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    write(target, "first")

    def fail_half_way() -> None:
        with replace_folder(target) as writing:
            (writing / "half").write_text("")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail_half_way()
    assert names(target) == ["inner"]
    assert names(tmp_path) == ["bundle"]


def test_a_full_disk_is_named_and_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "bundle"
    write(target, "first")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BundleError, match=r"bundle: No space left on device\. What was there before is unchanged"
    ):
        write(target, "second")
    assert (target / "inner" / "file.txt").read_text() == "first"
    assert names(tmp_path) == ["bundle"]


def test_a_real_write_failure_is_an_error_of_the_bundle(tmp_path: Path) -> None:
    script = f"""
        import resource, sys
        from pathlib import Path
        from easyrec.errors import BundleError
        from easyrec.export.folder import replace_folder
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
        try:
            with replace_folder(Path({str(tmp_path / "bundle")!r})) as writing:
                (writing / "large").write_bytes(bytes(5000))
        except BundleError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert names(tmp_path) == []


def kill_while_writing(target: Path, extra: str = "") -> None:
    """Starts a process that writes `target`, and kills it once it says that it is in the middle of it."""
    script = f"""
        import os, time
        from pathlib import Path
        from easyrec.export import folder
        {extra}
        with folder.replace_folder(Path({str(target)!r})) as writing:
            (writing / "half").write_text("")
            print("writing", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def test_a_killed_writer_leaves_the_old_folder_and_its_rest_is_removed_later(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    write(target, "first")
    kill_while_writing(target)
    assert (target / "inner" / "file.txt").read_text() == "first"
    assert len(names(tmp_path)) == 2
    write(target, "second")
    assert (target / "inner" / "file.txt").read_text() == "second"
    assert names(tmp_path) == ["bundle"]


def test_a_folder_set_aside_by_a_killed_writer_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    write(target, "first")
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    target.rename(tmp_path / f".bundle.previous-{finished.pid}-0")
    with pytest.raises(KeyError), replace_folder(target):
        raise KeyError("x")
    assert (target / "inner" / "file.txt").read_text() == "first"


def test_what_a_running_process_writes_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / f".bundle.writing-{os.getpid()}-0"
    other.mkdir()
    write(tmp_path / "bundle", "first")
    assert other.is_dir()
