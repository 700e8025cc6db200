"""The page of metrics, for Prometheus. What did not change since the last scrape is not written again.

The library writes each line, at some 5 to 15 microseconds of the interpreter. A model has up to 400. Where only numbers
have changed, what stands before them is taken from what the library wrote last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from weft_server.telemetry.metrics_table import MODEL_LABELS, PREFIX, TABLE, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.telemetry.metrics import Metrics
    from weft_server.telemetry.model_metrics import ModelMetrics, Shown

# In an Accept header, a version that does not consist of a few numbers, each of a few digits.
_NO_VERSION = re.compile(r";\s*version=(?!\d{1,9}(\.\d{1,9}){0,9}\s*([;,]|$))[^;,]*")
_END = b"# EOF\n"
# How many formats' lines a model keeps. A scraper asks for one, and its header may hold any version.
_MAX_FORMATS = 3


class _One(NamedTuple):
    """A metric as the library's encoders take it: something that is collected."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric


class MetricsPage:
    """The metrics of a server as text."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return the content type, which is chosen by an Accept header, and the text."""
        # The library does not know quotes, and fails over a version that is none.
        encode, content_type = choose_encoder(_NO_VERSION.sub("", accept.replace('"', "")))
        # Once for all metrics, so that they agree.
        models = [(model, model.values()) for model in list(self._metrics.models.values())]
        of_server = self._metrics.of_server()
        parts = [encode(self._metrics.process)]
        for spec in TABLE:
            if not spec.per_model:
                parts.append(encode(_One(of_server(spec))))
                continue
            parts.append(encode(_One(_family(spec))))
            parts += [
                _lines(model, spec, values[spec.name], encode, content_type)
                for model, values in models
                if spec.name in values
            ]
        end = _END if parts[0].endswith(_END) else b""
        return content_type, b"".join(part.removesuffix(_END) for part in parts) + end


def _lines(model: ModelMetrics, spec: Spec, value: Shown, encode: Callable[..., bytes], content_type: str) -> bytes:
    key = content_type, spec.name
    kept: _Written | None = model.lines.get(key)
    if kept is not None and kept.value == value:
        return kept.lines
    if len(model.lines) >= _MAX_FORMATS * len(TABLE):
        model.lines.clear()
    form, numbers = _form(spec, value)
    if kept is None or not form or kept.form != form:
        stems, lines = _write(model, spec, value, encode)
    else:
        stems, lines = kept.stems, b"".join(map(_line, kept.stems, numbers))
    model.lines[key] = _Written(value, lines, form, stems)
    return lines


class _Written(NamedTuple):
    """The lines of one metric of a model, and of each line what stands before its number."""

    value: Shown
    lines: bytes
    form: tuple[str, ...]
    stems: list[bytes]


def _form(spec: Spec, value: Shown) -> tuple[tuple[str, ...], list[float]]:
    """Return what the lines say beside their numbers, and these numbers, by line. Nothing if a trace is shown."""
    if spec.kind == "gauge":
        return (spec.name,), [value]
    if spec.kind == "counter":
        return (spec.name, *(label for label, _ in value)), [count for _, count in value]
    buckets, total = value
    if any(len(bucket) > 2 for bucket in buckets):  # the third is a trace
        return (), []
    counts = [count for _, count in buckets]
    return (spec.name,), [*counts, counts[-1], total]


def _line(stem: bytes, number: float) -> bytes:
    written: str = floatToGoString(number)  # type: ignore[no-untyped-call]
    return b"%b %b\n" % (stem, written.encode())


def _write(model: ModelMetrics, spec: Spec, value: Shown, encode: Callable[..., bytes]) -> tuple[list[bytes], bytes]:
    """Let the library write the lines. Returns what stands before each one's number, too."""
    family = _family(spec)
    _add(family, spec, model.labels, value)
    # Its first lines are those of the whole metric.
    lines = [line for line in encode(_One(family)).split(b"\n") if line[:1] not in b"#"]
    return [line.rpartition(b" ")[0] for line in lines], b"".join(line + b"\n" for line in lines)


def _family(spec: Spec) -> Metric:
    family_of = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    labels = (*MODEL_LABELS, spec.label) if spec.label else MODEL_LABELS
    family: Metric = family_of[spec.kind](PREFIX + spec.name, spec.help, labels=labels)
    return family


def _add(family: Metric, spec: Spec, labels: tuple[str, ...], value: Shown) -> None:
    match family:
        case HistogramMetricFamily():
            buckets, total = value
            family.add_metric(labels, buckets, total)
        case CounterMetricFamily():
            for label, count in value:
                family.add_metric((*labels, label) if spec.label else labels, count)
        case GaugeMetricFamily():
            family.add_metric(labels, value)
