"""Make, list and revoke API keys of the service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, output
from easyrec.errors import ConfigError, nearest
from serving.security.keys import SCOPES, KeyEntry, hash_key, new_key, read_keys, write_keys

FileOption = Annotated[
    Path,
    typer.Option(
        "--file", "-f", help="The file of keys, which holds their hashes.", envvar="EASYREC_SECURITY__KEYS"
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Who uses the key.")]
DEFAULT_FILE = Path("keys.yaml")

keys = typer.Typer(no_args_is_help=True, help="API keys of the service: make, list, revoke.")


@keys.command()
def create(
    name: NameArgument,
    file: FileOption = DEFAULT_FILE,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What it allows: read (recommendations), write (events, users, items) or admin (everything). "
            "May be repeated; read unless given.",
        ),
    ] = None,
    days: Annotated[float | None, typer.Option("--days", help="It expires after so many days.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Requests a second that it allows.")] = None,
) -> None:
    """Make a key. It is shown once; the file keeps its hash."""
    scopes = scope or ["read"]
    for one in scopes:
        if one not in SCOPES:
            raise ConfigError(f"there is no scope {one!r}.{nearest(one, SCOPES)}")
    entries = read_keys(file) if file.exists() else []
    if any(entry.name == name for entry in entries):
        raise ConfigError(f"{file} has a key named {name!r} already; revoke it first, or choose another name")
    now = datetime.now(UTC).replace(microsecond=0)
    if days is not None and not 0 < days < 36_500:
        raise ConfigError(f"--days must lie between 0 and 36500, got {days:g}")
    key = new_key()
    values = {
        "name": name,
        "scopes": [one for one in SCOPES if one in scopes],
        "hash": hash_key(key),
        "created": now,
        "expires": None if days is None else now + timedelta(days=days),
        "rate": rate,
    }
    try:
        entry = KeyEntry.model_validate(values)
    except ValueError as error:
        raise ConfigError(
            "a name has letters, digits, '.', '_' and '-', at most 64, and begins with a letter or digit; a rate is "
            f"greater than 0; got name {name!r} and rate {rate!r}"
        ) from error
    write_keys(file, [*entries, entry])
    messages().print(f"The key {name!r} ({', '.join(entry.scopes)}) is in {file}. It is shown only now:")
    output().print(key)


@keys.command("list")
def list_keys(file: FileOption = DEFAULT_FILE) -> None:
    """Show the keys there are; not the keys themselves, which nobody knows."""
    for entry in read_keys(file):
        expires = "" if entry.expires is None else f"  expires {entry.expires:%Y-%m-%d}"
        rate = "" if entry.rate is None else f"  {entry.rate:g} requests a second"
        output().print(f"{entry.name}  {','.join(entry.scopes)}{expires}{rate}")


@keys.command()
def revoke(name: NameArgument, file: FileOption = DEFAULT_FILE) -> None:
    """Take a key out of the file; running services refuse it within seconds."""
    entries = read_keys(file)
    kept = [entry for entry in entries if entry.name != name]
    if len(kept) == len(entries):
        raise ConfigError(f"{file} has no key named {name!r}.{nearest(name, [one.name for one in entries])}")
    write_keys(file, kept)
    output().print(f"The key {name!r} is revoked.")
