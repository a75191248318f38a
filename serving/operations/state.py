"""How the parts of the service stand, as numbers that are asked for when metrics are read.

They are those of the one process that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from easyrec.errors import EasyRecError
from serving.service import Service


class StateCollector(Collector):
    """Asks a service how it stands.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is depends on the models."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The numbers for Prometheus."""
        yield from self._models()
        yield from self._events()
        parts = GaugeMetricFamily("easyrec_part_up", "Whether a part is well.", labels=("part",))
        for part, state in self._service.status().items():
            parts.add_metric((part,), float(state == "ok"))
        yield parts
        yield GaugeMetricFamily(
            "easyrec_uptime_seconds",
            "Since the process began.",
            value=self._service.clock() - self._service.started,
        )

    def _models(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "easyrec_model_info",
            "Versions of models; the value is 1 for the one that serves.",
            labels=("model", "version", "state", "runtime"),
        )
        age = GaugeMetricFamily(
            "easyrec_model_age_seconds", "Since the serving bundle was written.", labels=("model",)
        )
        items = GaugeMetricFamily(
            "easyrec_items", "Items of the serving model that may be recommended.", labels=("model",)
        )
        hub = self._service.hub
        for version in hub.versions():
            labels = (version.name, version.version, version.state, version.runtime)
            info.add_metric(labels, float(version.state == "active"))
        for name in hub.names():
            model = hub.active(name)
            created = datetime.fromisoformat(model.manifest.created).timestamp()
            age.add_metric((name,), self._service.clock() - created)
            try:
                items.add_metric((name,), float(model.catalogue.available.sum()))
            except EasyRecError:
                continue  # it only predicts rows
        yield from (info, age, items)

    def _events(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "easyrec_events_backlog",
            "Events in the log that the store does not have yet.",
            value=self._service.writer.state.backlog,
        )
