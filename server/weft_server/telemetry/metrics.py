"""Counts and times what the server does. Its table says which metrics there are.

Lanes write to counters and histograms directly, at well under a microsecond each. Gauges are read when Prometheus asks.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Exemplar

from weft_server.telemetry.meters import Counter
from weft_server.telemetry.metrics_table import PREFIX, Spec
from weft_server.telemetry.model_metrics import ModelMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Metrics:
    """All metrics of one server, with those of the process beside them."""

    def __init__(self) -> None:
        self.process = CollectorRegistry()
        self.models: dict[tuple[str, ...], ModelMetrics] = {}
        self.loads: dict[str, Counter] = defaultdict(Counter)
        self._reloads: dict[str, Counter] = defaultdict(Counter)
        # Unix time.
        self.certificate_expiry = 0.0
        # Of each CUDA device, by its number: what the models that were placed there take.
        self.claimed_bytes: Callable[[], dict[str, int]] = dict
        # What each name of the tokens file used of each model, by the names of counters.
        self.tenant_usage: Callable[[], list[tuple[str, str, dict[str, int]]]] = list
        # What peers hold, by the names of gauges, and what was given up, by the names of counters.
        self.traffic: Callable[[], dict[str, float]] = dict
        self.log_events_dropped: Callable[[], int] = int
        self._draining = False
        self._no_model = self.for_model("", "", "")
        self._no_model.begin_at_zero("requests_total")
        ProcessCollector(registry=self.process)

    def for_model(self, name: str, version: int | str, task: str) -> ModelMetrics:
        """Return the metrics of one model. It is the same object each time, until the version has another task."""
        labels = (name, str(version), task)
        if labels not in self.models:
            self.forget(name, version)
        return self.models.setdefault(labels, ModelMetrics(labels))

    def forget(self, name: str, version: int | str) -> None:
        """Drop the metrics of a model that left."""
        for labels in list(self.models):
            if labels[:2] == (name, str(version)):
                # The model holds its metrics. Held by them too, it would wait for the garbage collector.
                self.models.pop(labels).sleep()

    def count_call(self, model: ModelMetrics | None, code: str, reason: str, seconds: float) -> None:
        """Count an RPC's end under its model, or under none. `reason` is that of ErrorInfo, or empty."""
        (model or self._no_model).ended(code, reason, seconds)

    def exemplify(self, model: ModelMetrics | None, latencies: dict[str, float], span: tuple[str, str, int]) -> None:
        """Let each histogram of a latency, by its name, show the span of a request that had that value."""
        trace_id, span_id, _ = span
        labels = {"trace_id": trace_id, "span_id": span_id}
        for name, seconds in latencies.items():
            (model or self._no_model).histograms[name].exemplify(Exemplar(labels, seconds, time.time()))

    def count_load(self, result: str) -> None:
        """Count a bundle that was loaded ("ready") or not ("refused")."""
        self.loads[result].inc()

    def count_reload(self, result: str) -> None:
        """Count a change of certificates or tokens that was "taken" or "refused"."""
        self._reloads[result].inc()

    def set_draining(self) -> None:
        """Say that the server drains."""
        self._draining = True

    def of_server(self) -> Callable[[Spec], Metric]:
        """Return what gives each metric that is no model's. All are of the moment of this call."""
        usage, numbers = self.tenant_usage(), self._numbers()
        labelled: dict[str, dict[str, float]] = {
            "model_loads_total": {result: counter.value for result, counter in list(self.loads.items())},
            "credential_reloads_total": {result: counter.value for result, counter in list(self._reloads.items())},
            "device_claimed_bytes": dict(self.claimed_bytes()),
            "build_info": {_version(): 1},
        }

        def samples(spec: Spec) -> Iterator[tuple[list[str], float]]:
            if "tenant" in spec.label:
                # A scrape may come while the first request is being counted.
                yield from (([tenant, model], counts.get(spec.name, 0)) for tenant, model, counts in usage)
            elif spec.label:
                yield from (([label], value) for label, value in labelled[spec.name].items())
            else:
                # A registry without a server beside it, as tests have it, knows no traffic.
                yield [], float(numbers.get(spec.name, 0))

        def metric(spec: Spec) -> Metric:
            family_of = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
            family = family_of(PREFIX + spec.name, spec.help, labels=spec.label.split(", ") if spec.label else [])
            for labels, value in samples(spec):
                family.add_metric(labels, value)
            return family

        return metric

    def _numbers(self) -> dict[str, float]:
        return self.traffic() | {
            "log_events_dropped_total": self.log_events_dropped(),
            "draining": self._draining,
            "certificate_expiry_timestamp_seconds": self.certificate_expiry,
        }


@cache
def _version() -> str:
    return importlib.metadata.version("weft-serving")
