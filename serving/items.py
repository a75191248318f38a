"""Items put through the API: kept in the store, and known to every model and process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from easyrec.errors import EasyRecError, SchemaError, nearest
from easyrec.export.tables import as_keys
from serving.funnel.items import NewItems
from serving.models.hub import ModelHub
from serving.models.served import ServedModel
from serving.stores.base import ItemChange, StoreError
from serving.stores.guard import GuardedStore

logger = logging.getLogger(__name__)


class ItemKeeper:
    """See the module.

    Args:
        hub: The models.
        store: Where changes are kept.
        new_items: Knows which items are new.
        clock: Seconds since 1970.
    """

    def __init__(
        self, hub: ModelHub, store: GuardedStore, new_items: NewItems, clock: Callable[[], float]
    ) -> None:
        self._hub = hub
        self._store = store
        self._new_items = new_items
        self._clock = clock
        self._version = 0
        self._lock = threading.Lock()
        self.primary = ""
        """Name of the model whose catalogue describes items."""
        self.refused: dict[str, str] = {}
        """Kept items that a model cannot take, and why, by key."""

    def put(self, item_id: str, columns: Mapping[str, Any], available: bool = True) -> ItemChange:
        """Puts an item with all its columns; the next request knows it.

        Raises:
            EasyRecError: A column does not exist or a value cannot be used; nothing is changed.
        """
        models = self._models()
        known = {name for model in models for name in model.catalogue.columns if name != model.catalogue.key}
        for name in columns:
            if name not in known:
                raise SchemaError(f"the item table has no column {name!r}.{nearest(name, known)}")
        change = ItemChange(item_id, dict(columns), available, self._came(item_id))
        for model in models:
            _put(model, [change])
        self._store.call(self._store.store.put_item, change)
        for model in models:
            self._new_items.put(model, [change])
        return change

    def patch(
        self, item_id: str, columns: Mapping[str, Any], available: bool | None = None
    ) -> ItemChange | None:
        """Changes some columns of an item; None when there is no such item.

        Raises:
            EasyRecError: See `put`.
        """
        self.follow()  # another process may have put or changed it a moment ago
        known = self._columns(item_id)
        if known is None:
            return None
        before, was_available = known
        return self.put(item_id, {**before, **columns}, was_available if available is None else available)

    def delete(self, item_id: str) -> bool:
        """Removes an item; whether there was one."""
        self.follow()
        known = self._columns(item_id)
        if known is None:
            return False
        change = ItemChange(item_id, known[0], False, self._came(item_id))
        self._store.call(self._store.store.put_item, change)
        for model in self._models():
            model.remove_items([item_id])
        return True

    def describe(self, item_id: str) -> tuple[dict[str, Any], bool] | None:
        """Columns of an item and whether it is available; None when there is none."""
        known = self._columns(item_id)
        if known is None:
            self.follow()
            known = self._columns(item_id)
        return known

    def bring_up_to_date(self, model: ServedModel) -> None:
        """Puts all kept items into a model that was just loaded, as far as the store can be asked."""
        try:
            changes = self._store.call(self._store.store.items_since, 0)
        except StoreError as error:
            logger.warning("items put through the API will be known once the store answers: %s", error)
            with self._lock:
                self._version = 0
            return
        self._take(model, changes)

    def follow(self) -> None:
        """Takes over what other processes have put since the last call."""
        with self._lock:
            changes = self._store.call(self._store.store.items_since, self._version)
            for model in self._models() if changes else ():
                self._take(model, changes)
            self._version = max([self._version, *(change.version for change in changes)])

    def _take(self, model: ServedModel, changes: Sequence[ItemChange]) -> None:
        """Brings kept changes into a model, as far as it can take them; notes why it cannot take others.

        Whatever is wrong with a kept row, the others must come, and so must those that are put after it.
        """
        if not changes:
            return
        try:
            self._bring(model, changes)
        except Exception:  # noqa: BLE001 see above
            for change in changes:
                try:
                    self._bring(model, [change])
                except Exception as error:  # noqa: BLE001 see above
                    logger.warning("item %s is passed over: %s", change.item_id, error)
                    self.refused[change.item_id] = str(error)

    def _bring(self, model: ServedModel, changes: Sequence[ItemChange]) -> None:
        _put(model, changes)
        self._new_items.put(model, [change for change in changes if change.available])

    def _came(self, item_id: str) -> float:
        """When an item came: changing it makes it no newer, and one that a bundle had before it was put is not new."""
        kept = self._store.call(self._store.store.item, item_id)
        if kept is not None:
            return kept.time
        known = self._hub.active(self.primary).catalogue.rows([item_id])[0] >= 0
        return 0.0 if known else self._clock()

    def _columns(self, item_id: str) -> tuple[dict[str, Any], bool] | None:
        kept = self._store.call(self._store.store.item, item_id)
        if kept is not None:
            return dict(kept.columns), kept.available
        catalogue = self._hub.active(self.primary).catalogue
        row = catalogue.rows([item_id])
        if row[0] < 0:
            return None
        columns = catalogue.properties(row)[0]
        columns.pop(catalogue.key)
        return columns, bool(catalogue.available[row[0]])

    def _models(self) -> list[ServedModel]:
        """All loaded models that have a catalogue, the primary one first."""
        found = []
        for name in sorted(self._hub.names(), key=lambda name: name != self.primary):
            for model in self._hub.loaded(name):
                try:
                    _ = model.catalogue
                except EasyRecError:
                    continue  # it only predicts rows
                found.append(model)
        return found


def _put(model: ServedModel, changes: Sequence[ItemChange]) -> None:
    """Brings changes into a model, all or none; columns that its item table lacks are left out.

    An item that is not available is only marked so: put first, it could be recommended for a moment.
    """
    catalogue = model.catalogue
    names = set(catalogue.columns)
    kind = catalogue.schema.field(catalogue.key).type
    keys = as_keys([change.item_id for change in changes], kind).to_pylist()
    rows = {}
    for key, change in zip(keys, changes, strict=True):
        if not change.available:
            continue
        if key is None:
            raise SchemaError(f"the keys of items are of type {kind} here, got {change.item_id!r}")
        rows[key] = {name: value for name, value in change.columns.items() if name in names}
    model.put_items(rows)
    model.remove_items([change.item_id for change in changes if not change.available])
