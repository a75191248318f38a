"""The command line as a whole: lists, errors, exit codes, commands of other packages, what starting it imports."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from easyrec.cli import main
from easyrec.cli.main import COMMANDS, LazyCommand, run
from easyrec.errors import ConfigError, DataError, EasyRecError, Problem, TrainingError
from evaluation.errors import EvaluationError

ROOT = Path(__file__).parents[3]


def fresh(*arguments, code="", cwd=ROOT, path=()):
    """A command line in an interpreter of its own; afterwards it tells the modules it holds."""
    program = (
        f"import sys, json\nfrom easyrec.cli.main import run\n{code}\nresult = run(sys.argv[1:])\n"
        "print('\\n' + json.dumps(sorted(sys.modules)), file=sys.stderr)\nsys.exit(result)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    *errors, modules = done.stderr.rstrip("\n").split("\n")
    return done.returncode, done.stdout, "\n".join(errors).rstrip(), set(json.loads(modules))


@pytest.mark.parametrize("command", [None, *(command.name for command in COMMANDS)])
def test_help_starts_without_heavy_imports(command):
    code, out, err, modules = fresh(*([command] if command else []), "--help")
    assert (code, err) == (0, "")
    assert "Usage: easyrec" in out
    assert "--traceback" in out or "COMMAND [ARGS]" in out  # each command of a group has it
    assert not modules & {"tensorflow", "keras", "pandas", "sklearn", "matplotlib"}


def test_the_list_of_commands_imports_none_of_them():
    _, out, _, modules = fresh("--help")
    assert all(command.name in out for command in COMMANDS)
    assert not [name for name in modules if name.startswith("easyrec.cli.") and name not in {
        "easyrec.cli.main", "easyrec.cli.common"
    }]  # fmt: skip


def test_a_summary_is_the_first_line_of_the_help():
    for command in COMMANDS:
        first = command.load().help.strip().split("\n")[0]
        assert first, command.name


def test_no_command_shows_what_there_is(capsys):
    assert run([]) == 2
    assert "validate" in "".join(capsys.readouterr())


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "easyrec 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validat"], "Error: No such command 'validat'. Did you mean 'validate'"),
        (["validate"], "CONFIG"),
        (["validate", "--sett", "x"], "--sett"),
        (["list", "nothing"], "nothing"),
    ],
)
def test_wrong_usage_ends_with_2(capsys, arguments, message):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.fixture
def command(monkeypatch):
    """Puts a function in place of all commands, under the name `it`."""

    def install(function):
        installed = LazyCommand("it", "It.", "unused:unused")
        monkeypatch.setattr(LazyCommand, "load", lambda self: main._as_command("it", function))
        monkeypatch.setattr(main, "COMMANDS", (installed,))

    return install


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataError("rows are missing"), 2, "error: rows are missing\n"),
        (ConfigError("wrong"), 2, "error: wrong\n"),
        (
            ConfigError([Problem("a.b", "[bold] is wrong", "f.yaml", 3), Problem("c", "too")]),
            2,
            "f.yaml:3  a.b  [bold] is wrong\nc  too\nerror: 2 problems in the configuration\n",
        ),
        (TrainingError("the loss is not a number"), 1, "error: the loss is not a number\n"),
        (EvaluationError("no labels"), 2, "error: no labels\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.csv"),
            2,
            "error: No such file or directory: x.csv\n",
        ),
        (OSError(28, "No space left on device"), 1, "error: No space left on device\n"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(capsys, command, error, code, text):
    def fail() -> None:
        raise error

    command(fail)
    assert run(["it"]) == code
    assert capsys.readouterr().err == text


def test_a_fault_of_our_own_says_so(capsys, command):
    def fail() -> None:
        {}["key"]

    command(fail)
    assert run(["it"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: KeyError: 'key'\n")
    assert "--traceback" in err
    assert "Traceback" not in err


def test_traceback_shows_the_place(capsys, command):
    def fail() -> None:
        raise EasyRecError("here")

    command(fail)
    assert run(["it", "--traceback"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):")
    assert "in fail" in err
    assert err.endswith("error: here\n")


def test_commands_choose_their_exit_code(command):
    def leave() -> None:
        raise typer.Exit(3)

    command(leave)
    assert run(["it"]) == 3


def test_interruption_ends_with_130_and_a_word(capsys, command):
    def wait() -> None:
        raise KeyboardInterrupt

    command(wait)
    assert run(["it"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_the_end_of_a_file_is_no_refused_question(capsys, command):
    def read() -> None:
        raise EOFError("nothing behind byte 7")

    command(read)
    assert run(["it"]) == 2
    assert capsys.readouterr().err == "error: a file ends too early: nothing behind byte 7\n"


def test_ctrl_c_from_outside(tmp_path):
    program = (
        "import time, sys\nfrom easyrec.cli import main\n"
        "def wait() -> None:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "main.LazyCommand.load = lambda self: main._as_command('validate', wait)\n"
        "sys.exit(main.run(['validate']))"
    )
    # A suite in the background of a shell ignores Ctrl-C, and children inherit that.
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    program = "import sys; from easyrec.cli.main import run; sys.exit(run(['schema']))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.read(1)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) in (0, 1)
    assert "Traceback" not in err


# -------------------------------------------------------------------------------------- commands of other packages


@pytest.fixture
def package(tmp_path):
    """A package with commands, as an installer leaves it."""
    folder = tmp_path / "site"
    info = folder / "shop_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[easyrec.commands]\nhello = shop_tools:hello\nshop = shop_tools:shop\nbroken = shop_tools_broken:it\n"
        "validate = shop_tools:hello\n"
    )
    (folder / "shop_tools.py").write_text(
        "import typer\nfrom easyrec.errors import DataError\n"
        "def hello(name: str = 'you') -> None:\n    '''Greet.'''\n    print(f'hello {name}')\n"
        "shop = typer.Typer()\n"
        "@shop.command()\ndef open() -> None:\n    '''Open.'''\n    raise DataError('closed')\n"
        "@shop.command()\ndef close() -> None:\n    '''Close.'''\n"
    )
    (folder / "shop_tools_broken.py").write_text("raise RuntimeError('half installed')\n")
    return folder


def test_commands_of_other_packages_join(package):
    code, out, _, modules = fresh("--help", path=[package])
    assert code == 0
    assert out.count("shop-tools") == 3
    assert "shop_tools" not in modules
    assert fresh("hello", "--name", "Ada", path=[package])[:2] == (0, "hello Ada\n")
    code, _, err, _ = fresh("shop", "open", "--traceback", path=[package])
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("error: closed")


def test_a_broken_command_harms_no_other(package):
    code, out, err, _ = fresh("broken", path=[package])
    assert (code, out) == (1, "")
    assert err == (
        "error: the command 'broken' comes from the package shop-tools (shop_tools_broken:it), which cannot be loaded: "
        "RuntimeError: half installed"
    )
    assert fresh("hello", path=[package])[0] == 0


def test_a_built_in_command_keeps_its_name(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    importlib.invalidate_caches()
    assert [command.name for command in main.installed_commands()] == [
        "broken",
        "hello",
        "keys",
        "serve",
        "shop",
    ]
