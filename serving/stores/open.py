"""Opens the store that the settings name."""

from __future__ import annotations

import importlib

from easyrec.errors import ConfigError
from serving.settings import MEMORY, SQLITE, Settings
from serving.stores.base import Store
from serving.stores.memory import MemoryStore
from serving.stores.sqlite import SqliteStore


def open_store(settings: Settings) -> Store:
    """The store.

    Raises:
        StoreError: It cannot be used.
        ConfigError: Its package is not installed.
    """
    if settings.store == MEMORY:
        return MemoryStore()
    if settings.store == SQLITE:
        return SqliteStore(settings.data / "store.sqlite")
    try:
        module = importlib.import_module("serving.stores.redis")
    except ImportError as error:
        raise ConfigError(
            f"store: {settings.store.split('@')[-1]} needs the package redis: pip install 'easyrec[redis]'"
        ) from error
    store: Store = module.RedisStore(settings.store, days=settings.keep_days)
    return store
