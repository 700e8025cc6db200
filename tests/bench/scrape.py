"""What a scrape takes: bytes, lines and processor time, with one model and with fifty, of which some were used."""

import time

from weft_server.telemetry.engine_stats import EngineStats, Usage
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage

FORMATS = {"text": "", "OpenMetrics": "application/openmetrics-text; version=1.0.0"}
SCRAPES = 10


def _served(num_models, num_used):
    metrics = Metrics()
    for index in range(num_models):
        model = metrics.for_model(f"model-{index}", 1, "translate")
        model.watch(lambda: EngineStats(3, 70, 1.5, 8, Usage(6, 32, 50, 200), 0.0, 7))
        model.set_ready()
        if index < num_used:
            metrics.count_call(model, "OK", "", 0.1)
            for histogram in model.histograms.values():
                for step in range(200):
                    histogram.observe(step * 0.01)
    return metrics


def _main():
    print("| models | used | format | bytes | lines | first scrape, ms | each after it, ms |")
    print("|---|---|---|---|---|---|---|")
    for num_models, num_used in ((1, 0), (50, 0), (1, 1), (50, 1), (50, 50)):
        page = MetricsPage(_served(num_models, num_used))
        for name, accept in FORMATS.items():
            began = time.process_time()
            page.render(accept)
            first = time.process_time()
            for _ in range(SCRAPES):
                text = page.render(accept)[1]
            took = (time.process_time() - first) / SCRAPES
            sizes = f"{len(text):,} | {len(text.splitlines()):,}"
            print(f"| {num_models} | {num_used} | {name} | {sizes} | {(first - began) * 1e3:.1f} | {took * 1e3:.1f} |")


if __name__ == "__main__":
    _main()
