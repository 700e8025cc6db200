"""What one model did and does: its counters, its histograms, and the gauges of its engine."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from weft_server.telemetry.meters import Counter, Histogram, Level
from weft_server.telemetry.metrics_table import AT_ZERO, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.sequence import Sequence
    from weft_server.telemetry.engine_stats import EngineStats

# Of a counter the values by label, of a gauge a number, of a histogram its snapshot. Equal ones look alike.
Shown: TypeAlias = Any


class ModelMetrics:
    """One model's metrics, already labelled. `inc` and `observe` may be called from any thread."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        # Empty for calls that reach no model.
        self.name = labels[0]
        self.counters: dict[tuple[str, str], Counter] = defaultdict(Counter)
        self.histograms = {spec.name: Histogram(spec.buckets) for spec in TABLE if spec.kind == "histogram"}
        # Their lines on the page of metrics, as they were shown last.
        self.lines: dict[tuple[str, str], Any] = {}
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
        self.prefix_cache_bytes = Level()
        self.prefix_cache_max_bytes = 0
        # Of the vectors of labels that are kept.
        self.label_cache_bytes = 0
        # Of what pictures in prompts have given.
        self.picture_cache_bytes = 0
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
        self.label_cache_evictions = self.counters["label_cache_evictions_total", ""]
        self.picture_cache_evictions = self.counters["picture_cache_evictions_total", ""]
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
        for name in AT_ZERO:
            self.begin_at_zero(name)
        self._ready = True

    def begin_at_zero(self, name: str) -> None:
        """Show a counter with those labels whose first value would come too late."""
        for label in AT_ZERO[name]:
            _ = self.counters[name, label]

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
        if sequence.is_counted:
            return
        times = sequence.times
        if not times.admitted:
            self.queue_time.observe((times.finished or time.monotonic()) - times.accepted)
            return
        self.prompt_tokens.inc(sequence.num_input_tokens)
        self.request_prompt_tokens.observe(sequence.num_input_tokens)
        if sequence.decoding is None:
            return
        self.request_output_tokens.observe(sequence.num_output_tokens)
        if times.first_token:
            self.prefill.observe(times.first_token - times.admitted)
            self.time_to_first_token.observe(times.first_token - times.accepted)

    def values(self) -> dict[str, Shown]:
        """Return what there is to show of the model now, by the names of metrics.

        A counter is there from 0 on: `increase` sees no first value come. A histogram, with its thirty lines, is there
        from its first observation on.
        """
        counters: dict[str, Shown] = defaultdict(list)
        for (name, label), counter in list(self.counters.items()):
            # Where there is no model, only calls have lines.
            if self.name or counter.value or name == "requests_total":
                counters[name].append((label, counter.value))
        observed = {name: each.snapshot() for name, each in self.histograms.items() if each.is_observed}
        return counters | observed | (self.gauges() if self.name else {})

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
            "requests_seeing": stats.seeing,
            "label_cache_bytes": self.label_cache_bytes,
            "picture_cache_bytes": self.picture_cache_bytes,
            "prefix_cache_bytes": self.prefix_cache_bytes.value,
            "prefix_cache_max_bytes": self.prefix_cache_max_bytes,
            "decode_slots_used": stats.held.slots_used,
            "decode_slots_max": stats.held.slots_total,
            "kv_cache_utilization": stats.held.kv_used / stats.held.kv_total if stats.held.kv_total else 0.0,
            "restarts_left": stats.restarts_left,
            "adapters_resident": self.num_adapters(),
            # Without the digits in which the two clocks differ from one scrape to the next.
            "scheduler_last_step_timestamp_seconds": round(time.time() - (time.monotonic() - stats.last_step_time), 3),
        }
