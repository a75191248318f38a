"""API keys: made, kept as hashes, looked up, revoked while the service runs; and the command for it."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from typer.testing import CliRunner

from easyrec.errors import ConfigError, EasyRecError
from serving.security.cli import keys as command
from serving.security.keys import KeyEntry, KeyFileRing, KeyRing, hash_key, new_key, read_keys, write_keys
from serving.security.settings import SecuritySettings, check_address

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entry(key: str, name: str = "shop", **values) -> KeyEntry:
    return KeyEntry(**{"name": name, "scopes": ("read",), "hash": hash_key(key), **values})


def test_keys_are_long_and_differ():
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(len(key) >= 43 and key.startswith("er_") for key in made)


def test_a_key_is_known_by_its_hash_alone():
    ring = KeyRing([entry("one"), entry("two", "other", scopes=("admin",), rate=5)])
    assert ring.caller("one").name == "shop"
    assert ring.caller("two").rate == 5
    for wrong in ("", "on", "ONE", "one ", hash_key("one"), "\udcff"):
        assert ring.caller(wrong) is None


def test_scopes_are_apart_and_admin_has_all():
    reader, writer, admin = (
        KeyRing([entry("k", scopes=scopes)]).caller("k") for scopes in (("read",), ("write",), ("admin",))
    )
    assert (reader.may("read"), reader.may("write"), reader.may("admin")) == (True, False, False)
    assert (writer.may("read"), writer.may("write"), writer.may("admin")) == (False, True, False)
    assert admin.may("read")
    assert admin.may("write")
    assert admin.may("admin")


def test_an_expired_key_is_refused():
    key = entry("k", expires=NOW)
    assert KeyRing([key], lambda: NOW - timedelta(seconds=1)).caller("k") is not None
    assert KeyRing([key], lambda: NOW).caller("k") is None


def test_the_file_holds_no_key_and_only_its_owner_reads_it(tmp_path):
    path = tmp_path / "deep" / "keys.yaml"
    key = new_key()
    write_keys(path, [entry(key, expires=NOW)])
    assert key not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path) == [entry(key, expires=NOW)]
    assert [child.name for child in path.parent.iterdir()] == ["keys.yaml"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("keys: [{name: a, scopes: [read], hash: er_the-key-itself}]", "keys.0.hash"),
        ("keys: [{name: a, scopes: [], hash: x}]", "keys.0.scopes"),
        ("keys: [{name: a, scopes: [reed], hash: x}]", "keys.0.scopes"),
        ("key: []", "key"),
        ("- a", "KeyFile|valid"),
        ("{", "not YAML"),
    ],
)
def test_a_wrong_file_is_refused_and_what_it_holds_is_not_repeated(tmp_path, content, message):
    path = tmp_path / "keys.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_keys(path)
    assert "er_the-key-itself" not in str(caught.value)


def test_names_and_keys_occur_once(tmp_path):
    for entries in ([entry("a"), entry("b")], [entry("a"), entry("a", "other")]):
        write_keys(tmp_path / "keys.yaml", entries)
        with pytest.raises(ConfigError, match="two keys have the same"):
            read_keys(tmp_path / "keys.yaml")


def test_a_running_service_follows_the_file_and_survives_a_broken_one(tmp_path, caplog):
    path, clock = tmp_path / "keys.yaml", iter(range(0, 1000, 10))
    write_keys(path, [entry("a")])
    ring = KeyFileRing(path, clock=lambda: next(clock))
    assert ring.caller("a") is not None
    write_keys(path, [entry("b", "other")])
    assert ring.caller("a") is None
    assert ring.caller("b") is not None
    path.write_text("keys: {")
    assert ring.caller("b") is not None
    assert "not used as it is now" in caplog.text
    path.unlink()
    assert ring.caller("b") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.9.9.9"])
def test_this_machine_alone_needs_no_keys(host):
    check_address(host, SecuritySettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "shop.example", ""])
def test_a_public_address_needs_keys_or_a_gateway(host, tmp_path):
    with pytest.raises(ConfigError, match="easyrec keys create"):
        check_address(host, SecuritySettings())
    check_address(host, SecuritySettings(keys=tmp_path / "keys.yaml"))
    check_address(host, SecuritySettings(open=True))


def run(*arguments: str):
    return CliRunner().invoke(command, arguments)


def test_the_command_makes_lists_and_revokes(tmp_path):
    file = str(tmp_path / "keys.yaml")
    made = run(
        "create", "shop", "--file", file, "--scope", "write", "--scope", "read", "--days", "30", "--rate", "9"
    )
    assert made.exit_code == 0
    key = made.stdout.strip().splitlines()[-1]
    caller = KeyFileRing(tmp_path / "keys.yaml").caller(key)
    assert (caller.name, caller.scopes, caller.rate) == ("shop", {"read", "write"}, 9)
    [stored] = yaml.safe_load((tmp_path / "keys.yaml").read_text())["keys"]
    assert stored["scopes"] == ["read", "write"]
    listed = run("list", "--file", file).stdout
    assert "shop  read,write" in listed
    assert key not in listed
    run("create", "other", "--file", file)
    assert run("revoke", "shop", "--file", file).exit_code == 0
    assert [one.name for one in read_keys(tmp_path / "keys.yaml")] == ["other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "shop"], "has a key named 'shop' already"),
        (["create", "a b"], "a name has letters"),
        (["create", "new", "--scope", "rread"], "Did you mean 'read'"),
        (["create", "new", "--days", "-1"], "--days must lie"),
        (["create", "new", "--rate", "0"], "greater than 0"),
        (["revoke", "shap"], "Did you mean 'shop'"),
    ],
)
def test_the_command_explains_what_it_refuses(tmp_path, arguments, message):
    write_keys(tmp_path / "keys.yaml", [entry("k")])
    done = run(*arguments, "--file", str(tmp_path / "keys.yaml"))
    assert isinstance(done.exception, EasyRecError)
    assert message in str(done.exception)
    assert len(read_keys(tmp_path / "keys.yaml")) == 1
