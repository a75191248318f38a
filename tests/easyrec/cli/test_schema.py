import json

from easyrec.cli.main import run
from easyrec.config.schema import json_schema


def test_it_prints_the_schema(capsys):
    assert run(["schema"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == json_schema()
    assert captured.err == ""


def test_it_writes_the_schema(tmp_path, capsys):
    assert run(["schema", "--output", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text()) == json_schema()
    assert capsys.readouterr().out == ""


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert run(["schema", "-o", str(tmp_path / "no" / "s.json")]) == 2
    assert capsys.readouterr().err.startswith("error: No such file or directory: ")


def test_a_plugin_that_is_not_there(capsys):
    assert run(["schema", "--plugin", "no_such_plugin"]) == 2
    assert "'no_such_plugin' cannot be imported" in capsys.readouterr().err
