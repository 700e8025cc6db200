"""Counts and times what the server does. Its table says which metrics there are.

Lanes write to counters and histograms directly, at well under a microsecond each. Gauges are read when Prometheus asks.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from weft_server.telemetry.meters import Counter, Histogram
from weft_server.telemetry.metrics_table import MODEL_LABELS, PREFIX, TABLE, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.sequence import Sequence
    from weft_server.telemetry.engine_stats import EngineStats


class ModelMetrics:
    """One model's metrics, already labelled. `inc` and `observe` may be called from any thread."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        # Empty for calls that reach no model.
        self.name = labels[0]
        self.counters: dict[tuple[str, str], Counter] = defaultdict(Counter)
        self.histograms = {spec.name: Histogram(spec.buckets) for spec in TABLE if spec.kind == "histogram"}
        self._stats: Callable[[], EngineStats] | None = None
        self._ready = False
        # Answers that wait for their explanation now.
        self.explaining = 0
        # Requests that wait for their constraint, or for an adapter that is not there yet.
        self.constraining = 0
        self.adapting = 0
        # How many adapters are in memory.
        self.num_adapters: Callable[[], int] = int
        # What the prefix cache holds now, and may hold.
        self.prefix_cache_bytes = 0
        self.prefix_cache_max_bytes = 0
        # Of the vectors of labels that are kept.
        self.label_cache_bytes = 0
        self.prompt_tokens = self.counters["prompt_tokens_total", ""]
        self.generated_tokens = self.counters["generated_tokens_total", ""]
        self.wasted_tokens = self.counters["wasted_tokens_total", ""]
        self.computed_tokens = self.counters["computed_tokens_total", ""]
        self.prefix_cache_tokens = self.counters["prefix_cache_tokens_total", ""]
        self.prefix_cache_evictions = self.counters["prefix_cache_evictions_total", ""]
        self.draft_tokens = self.counters["spec_decode_draft_tokens_total", ""]
        self.accepted_tokens = self.counters["spec_decode_accepted_tokens_total", ""]
        self.preemptions = self.counters["preemptions_total", ""]
        self.adapter_evictions = self.counters["adapter_evictions_total", ""]
        self.padding_tokens = self.counters["padding_tokens_total", ""]
        self.request_duration = self.histograms["request_duration_seconds"]
        self.preprocess = self.histograms["preprocess_seconds"]
        self.constraint_build = self.histograms["constraint_build_seconds"]
        self.queue_time = self.histograms["queue_time_seconds"]
        self.prefill = self.histograms["prefill_seconds"]
        self.time_to_first_token = self.histograms["time_to_first_token_seconds"]
        self.inter_token_latency = self.histograms["inter_token_latency_seconds"]
        self.decode_step = self.histograms["decode_step_seconds"]
        self.session_run = self.histograms["session_run_seconds"]
        self.explain = self.histograms["explain_seconds"]
        self.batch_size = self.histograms["batch_size"]
        self.decode_batch_size = self.histograms["decode_batch_size"]
        self.request_prompt_tokens = self.histograms["request_prompt_tokens"]
        self.request_output_tokens = self.histograms["request_output_tokens"]

    def watch(self, stats: Callable[[], EngineStats]) -> None:
        """Read gauges from `stats` at each scrape, on the HTTP server's thread."""
        self._stats = stats

    def set_ready(self) -> None:
        """Say that the model answers requests. What it did since it was loaded, to prove itself, is not counted."""
        for meter in self._meters():
            meter.reset()
        self._ready = True

    def sleep(self) -> None:
        """Say that the model left the memory, and is loaded again when it is asked. What was counted stays."""
        for meter in self._meters():
            meter.keep()
        self._stats, self.num_adapters = None, int

    def _meters(self) -> list[Counter | Histogram]:
        return [*self.counters.values(), *self.histograms.values()]

    def finished(self, reason: str) -> None:
        """Count a completed answer."""
        self.counters["finished_total", reason].inc()

    def read_whole(self, why: str) -> None:
        """Count a row of which all logits were read to choose a token."""
        self.counters["rows_read_whole_total", why].inc()

    def cancelled(self, stage: str) -> None:
        """Count a sequence whose caller went."""
        self.counters["cancelled_total", stage].inc()

    def failed(self, reason: str) -> None:
        """Count a lane or a worker that failed, by the reason in ErrorInfo."""
        self.counters["failures_total", reason].inc()

    def loaded_adapter(self, result: str) -> None:
        """Count an adapter that was loaded ("ready") or not ("refused")."""
        self.counters["adapter_loads_total", result].inc()

    def looked_up(self, num_cached: int) -> None:
        """Count a prompt or a source of which the prefix cache held so many tokens."""
        self.counters["prefix_cache_lookups_total", "hit" if num_cached else "miss"].inc()
        self.prefix_cache_tokens.inc(num_cached)

    def ended(self, code: str, reason: str, seconds: float) -> None:
        """Count an RPC's end."""
        self.counters["requests_total", code].inc()
        if reason:
            self.counters["rejected_total", reason].inc()
        self.request_duration.observe(seconds)

    def observe_sequence(self, sequence: Sequence) -> None:
        """Take over what a sequence knows at its end, whichever way it ended."""
        times = sequence.times
        if not times.admitted:
            self.queue_time.observe((times.finished or time.monotonic()) - times.accepted)
            return
        if sequence.is_counted:
            return
        self.prompt_tokens.inc(sequence.num_input_tokens)
        self.request_prompt_tokens.observe(sequence.num_input_tokens)
        if sequence.decoding is None:
            return
        self.request_output_tokens.observe(sequence.num_output_tokens)
        if times.first_token:
            self.prefill.observe(times.first_token - times.admitted)
            self.time_to_first_token.observe(times.first_token - times.accepted)

    def gauges(self) -> dict[str, float]:
        """Return the gauges now."""
        gauges = {"model_ready": float(self._ready)}
        read = self._stats  # the model may leave meanwhile: a scrape is on another thread
        if read is None:
            return gauges
        stats = read()
        return gauges | {
            "requests_queued": stats.queued,
            "queued_tokens": stats.queued_tokens,
            "oldest_queued_seconds": stats.oldest_queued_s,
            "requests_running": stats.running,
            "requests_explaining": self.explaining,
            "requests_constraining": self.constraining,
            "requests_adapting": self.adapting,
            "label_cache_bytes": self.label_cache_bytes,
            "prefix_cache_bytes": self.prefix_cache_bytes,
            "prefix_cache_max_bytes": self.prefix_cache_max_bytes,
            "decode_slots_used": stats.held.slots_used,
            "decode_slots_max": stats.held.slots_total,
            "kv_cache_utilization": stats.held.kv_used / stats.held.kv_total if stats.held.kv_total else 0.0,
            "restarts_left": stats.restarts_left,
            "adapters_resident": self.num_adapters(),
            "scheduler_last_step_timestamp_seconds": time.time() - (time.monotonic() - stats.last_step_time),
        }


class Metrics(Collector):
    """All metrics of one server, in a registry of their own, with those of the process beside them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

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

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the table, for the registry."""
        models = list(self.models.values())
        # Once for all gauges, so that they agree.
        gauges = {model.labels: model.gauges() for model in models if model.name}
        traffic, tenants = self.traffic(), self.tenant_usage()
        for spec in TABLE:
            if not spec.per_model:
                yield _of_tenants(spec, tenants) if "tenant" in spec.label else self._of_server(spec, traffic)
            elif spec.kind == "counter":
                yield _counters(spec, models)
            elif spec.kind == "gauge":
                yield _gauges(spec, gauges)
            else:
                yield _histograms(spec, models)

    def _of_server(self, spec: Spec, traffic: dict[str, float]) -> Metric:
        counters = {"model_loads_total": self.loads, "credential_reloads_total": self._reloads}
        if spec.name in counters:
            family = CounterMetricFamily(PREFIX + spec.name, spec.help, labels=[spec.label])
            for result, counter in list(counters[spec.name].items()):
                family.add_metric([result], counter.value)
            return family
        if spec.name == "log_events_dropped_total":
            return CounterMetricFamily(PREFIX + spec.name, spec.help, value=self.log_events_dropped())
        if spec.name == "device_claimed_bytes":
            claimed = GaugeMetricFamily(PREFIX + spec.name, spec.help, labels=[spec.label])
            for device, num_bytes in self.claimed_bytes().items():
                claimed.add_metric([device], num_bytes)
            return claimed
        if spec.name == "build_info":
            build = GaugeMetricFamily(PREFIX + spec.name, spec.help, labels=[spec.label])
            build.add_metric([importlib.metadata.version("weft-serving")], 1)
            return build
        values = traffic | {
            "draining": self._draining,
            "certificate_expiry_timestamp_seconds": self.certificate_expiry,
        }
        family_of = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
        # A registry without a server beside it, as tests have it, knows no traffic.
        return family_of(PREFIX + spec.name, spec.help, value=float(values.get(spec.name, 0)))


def _of_tenants(spec: Spec, usage: list[tuple[str, str, dict[str, int]]]) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + spec.name, spec.help, labels=spec.label.split(", "))
    for tenant, model, counts in usage:
        # A scrape may come while the first request is being counted.
        family.add_metric([tenant, model], counts.get(spec.name, 0))
    return family


def _counters(spec: Spec, models: list[ModelMetrics]) -> CounterMetricFamily:
    labels = (*MODEL_LABELS, spec.label) if spec.label else MODEL_LABELS
    family = CounterMetricFamily(PREFIX + spec.name, spec.help, labels=labels)
    for model in models:
        for (name, value), counter in list(model.counters.items()):
            if name == spec.name and (model.name or counter.value):
                family.add_metric((*model.labels, value) if spec.label else model.labels, counter.value)
    return family


def _gauges(spec: Spec, gauges: dict[tuple[str, ...], dict[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + spec.name, spec.help, labels=MODEL_LABELS)
    for labels, values in gauges.items():
        if spec.name in values:
            family.add_metric(labels, values[spec.name])
    return family


def _histograms(spec: Spec, models: list[ModelMetrics]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(PREFIX + spec.name, spec.help, labels=MODEL_LABELS)
    for model in models:
        buckets, total = model.histograms[spec.name].snapshot()
        # Calls of no model have a line only if there were any.
        if model.name or buckets[-1][1]:
            family.add_metric(model.labels, buckets, total)
    return family
