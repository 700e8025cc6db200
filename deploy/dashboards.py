"""Writes Grafana's dashboards for the metrics of the server: the chart and Kubernetes install what is written.

`python deploy/dashboards.py` after a change of a metric or of a row here.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from weft_server.telemetry.metrics_table import PREFIX, TABLE

FOLDER = Path(__file__).parent / "chart/weft/files/dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# What each series has to match. Grafana puts what is chosen in the place of `$...`.
PODS = 'namespace=~"$namespace",pod=~"$pod"'
MODELS = f'{PODS},model=~"$model"'
HELP = {spec.name: spec.help for spec in TABLE}


class Panel(NamedTuple):
    """A picture of one query. In it, `#` before a metric's name is the prefix, and `{}` what its series match."""

    title: str
    unit: str
    query: str
    legend: str


def rate(metric: str, by: str, more: str = "") -> str:
    """The query of how fast a counter grows."""
    return f"sum by ({by}) (rate(#{metric}{{{more}}}[$__rate_interval]))"


def share(part: str, whole: str, by: str = "model") -> str:
    """The query of which part of a counter another one is."""
    return f"{rate(part, by)} / {rate(whole, by)}"


def quantile(level: float, metric: str) -> str:
    """The query of a quantile of a histogram."""
    return f"histogram_quantile({level}, {rate(f'{metric}_bucket', 'le, model')})"


def gauge(metric: str, by: str = "model, pod", how: str = "sum") -> str:
    """The query of a gauge."""
    return f"{how} by ({by}) (#{metric}{{}})"


# By the name of the dashboard, by row. The title of the panel is that of its query.
DASHBOARDS: dict[str, dict[str, tuple[Panel, ...]]] = {
    "overview": {
        "Calls": (
            Panel("Calls", "reqps", rate("requests_total", "code"), "{{code}}"),
            Panel("Refused, by reason", "reqps", rate("rejected_total", "reason"), "{{reason}}"),
            Panel("Time to first token, 95 %", "s", quantile(0.95, "time_to_first_token_seconds"), "{{model}}"),
            Panel("Time of a call, 95 %", "s", quantile(0.95, "request_duration_seconds"), "{{model}}"),
        ),
        "Tokens": (
            Panel("Tokens read", "short", rate("prompt_tokens_total", "model"), "{{model}}"),
            Panel("Tokens written", "short", rate("generated_tokens_total", "model"), "{{model}}"),
        ),
        "Health": (
            Panel("Ready", "short", gauge("model_ready"), "{{model}} {{pod}}"),
            Panel("Restarts left", "short", gauge("restarts_left"), "{{model}} {{pod}}"),
            Panel("Lost log events", "short", rate("log_events_dropped_total", "pod"), "{{pod}}"),
            Panel("Version", "short", gauge("build_info", "build_version"), "{{build_version}}"),
        ),
    },
    "model": {
        "Times": (
            Panel("Queue, 95 %", "s", quantile(0.95, "queue_time_seconds"), "{{model}}"),
            Panel("Prefill, 95 %", "s", quantile(0.95, "prefill_seconds"), "{{model}}"),
            Panel("Between tokens, 95 %", "s", quantile(0.95, "inter_token_latency_seconds"), "{{model}}"),
            Panel("Decode step, 95 %", "s", quantile(0.95, "decode_step_seconds"), "{{model}}"),
            Panel("Run without text, 95 %", "s", quantile(0.95, "session_run_seconds"), "{{model}}"),
            Panel("Tokenizing and decoding of files, 95 %", "s", quantile(0.95, "preprocess_seconds"), "{{model}}"),
        ),
        "Batches": (
            Panel(
                "Rows in a decode step",
                "short",
                share("decode_batch_size_sum", "decode_batch_size_count"),
                "{{model}}",
            ),
            Panel("Requests in a batch", "short", share("batch_size_sum", "batch_size_count"), "{{model}}"),
            Panel(
                "Padding in what was computed",
                "percentunit",
                share("padding_tokens_total", "computed_tokens_total"),
                "{{model}}",
            ),
            Panel(
                "Input that the prefix cache spared",
                "percentunit",
                share("prefix_cache_tokens_total", "prompt_tokens_total"),
                "{{model}}",
            ),
        ),
        "Requests": (
            Panel("Input tokens, median", "short", quantile(0.5, "request_prompt_tokens"), "{{model}}"),
            Panel("Output tokens, median", "short", quantile(0.5, "request_output_tokens"), "{{model}}"),
            Panel("Ends", "reqps", rate("finished_total", "model, reason"), "{{model}} {{reason}}"),
            Panel("Wasted tokens", "short", rate("wasted_tokens_total", "model"), "{{model}}"),
        ),
    },
    "tenants": {
        "Use": (
            Panel("Requests", "reqps", rate("tenant_requests_total", "tenant, model"), "{{tenant}} {{model}}"),
            Panel("Tokens read", "short", rate("tenant_input_tokens_total", "tenant, model"), "{{tenant}} {{model}}"),
            Panel(
                "Tokens written", "short", rate("tenant_output_tokens_total", "tenant, model"), "{{tenant}} {{model}}"
            ),
        ),
        "Refusals": (
            Panel(
                "For who calls",
                "reqps",
                rate("rejected_total", "reason", 'reason=~"TENANT_.+|MODEL_NOT_ALLOWED|ROLE_MISSING|TOKEN_.+"'),
                "{{reason}}",
            ),
        ),
    },
    "saturation": {
        "Waiting": (
            Panel("Requests that wait", "short", gauge("requests_queued"), "{{model}} {{pod}}"),
            Panel("Oldest of them", "s", gauge("oldest_queued_seconds", how="max"), "{{model}} {{pod}}"),
            Panel("Their tokens", "short", gauge("queued_tokens"), "{{model}} {{pod}}"),
        ),
        "Places": (
            Panel("Requests that run", "short", gauge("requests_running"), "{{model}} {{pod}}"),
            Panel("Slots used", "short", gauge("decode_slots_used"), "{{model}} {{pod}}"),
            Panel("Slots", "short", gauge("decode_slots_max"), "{{model}} {{pod}}"),
            Panel("KV cache", "percentunit", gauge("kv_cache_utilization", how="max"), "{{model}} {{pod}}"),
        ),
        "Process": (
            Panel(
                "Processors", "short", "sum by (pod) (rate(process_cpu_seconds_total{}[$__rate_interval]))", "{{pod}}"
            ),
            Panel("Memory", "bytes", "sum by (pod) (process_resident_memory_bytes{})", "{{pod}}"),
            Panel("Connections", "short", gauge("connections", "pod"), "{{pod}}"),
            Panel("Bytes of messages", "bytes", gauge("held_bytes", "pod"), "{{pod}}"),
        ),
    },
}


def query_of(panel: Panel) -> str:
    """Return the query as Prometheus reads it, but for Grafana's variables."""

    def series(found: re.Match[str]) -> str:
        name, more = found[1], found[2]
        # Those of the server alone have no model.
        per_model = any(spec.per_model and name.startswith(PREFIX + spec.name) for spec in TABLE)
        matched = MODELS if per_model else PODS
        return f"{name}{{{matched}{',' if more else ''}{more}}}"

    return re.sub(r"(\w+)\{([^}]*)\}", series, panel.query.replace("#", PREFIX))


def description_of(panel: Panel) -> str:
    """Return what the table of metrics says of each metric of the panel."""
    names = re.findall(r"#(\w+)\{", panel.query)
    plain = [re.sub("_(bucket|sum|count)$", "", name) for name in names]
    return "\n\n".join(dict.fromkeys(HELP[name] for name in plain))


def dashboard(name: str) -> str:
    """Return a dashboard as Grafana's JSON."""
    made = Dashboard(f"Weft: {name}").uid(f"weft-{name}").tags(["weft"]).refresh("30s").time("now-1h", "now")
    made.with_variable(DatasourceVariable("datasource").type("prometheus"))
    for variable, metric in (("namespace", "build_info"), ("pod", "build_info"), ("model", "model_ready")):
        values = f"label_values({PREFIX}{metric}, {variable})"
        choice = (
            QueryVariable(variable)
            .datasource(SOURCE)
            .query(values)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(multi=True)
        )
        made.with_variable(choice.include_all(include_all=True).all_value(".*"))
    for title, panels in DASHBOARDS[name].items():
        made.with_row(Row(title))
        for panel in panels:
            query = Dataquery().expr(query_of(panel)).legend_format(panel.legend)
            picture = TimeSeries().title(panel.title).description(description_of(panel)).unit(panel.unit)
            made.with_panel(picture.datasource(SOURCE).with_target(query).span(8).height(8))
    return json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=1).encode(made.build())), indent=1) + "\n"


def main() -> None:
    """Write each into the chart."""
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(dashboard(name))


if __name__ == "__main__":
    main()
