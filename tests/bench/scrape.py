"""What a scrape takes: bytes, lines and processor time, with one model and with fifty, of which some were used.

After the first scrape nothing happens, or all that were used work before each.
"""

import itertools
import time

from weft_server.telemetry.engine_stats import EngineStats, Usage
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage

FORMATS = {"text": "", "OpenMetrics": "application/openmetrics-text; version=1.0.0"}
SCRAPES = 20
SECONDS = itertools.cycle(step * 0.01 for step in range(200))


def _served(num_models, num_used):
    metrics = Metrics()
    for index in range(num_models):
        model = metrics.for_model(f"model-{index}", 1, "translate")
        model.watch(lambda: EngineStats(3, 70, 1.5, 8, Usage(6, 32, 50, 200), 0.0, 7))
        model.set_ready()
        if index < num_used:
            for _ in range(200):
                _work(metrics, model)
    return metrics


def _work(metrics, model):
    """Let each number of a model change."""
    metrics.count_call(model, "OK", "", 0.1)
    for counter in list(model.counters.values()):
        counter.inc(7)
    for histogram in model.histograms.values():
        histogram.observe(next(SECONDS))


def _milliseconds(page, accept, work=lambda: None):
    """Processor time of a scrape after the first, and its text."""
    took = 0.0
    for _ in range(SCRAPES):
        work()
        began = time.process_time()
        text = page.render(accept)[1]
        took += time.process_time() - began
    return took / SCRAPES * 1e3, text


def _main():
    print("| models | used | format | bytes | lines | first scrape, ms | after nothing, ms | after work, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for num_models, num_used in ((1, 0), (50, 0), (1, 1), (8, 8), (50, 1), (50, 50)):
        metrics = _served(num_models, num_used)
        page, used = MetricsPage(metrics), list(metrics.models.values())[1 : 1 + num_used]

        def work(metrics=metrics, used=used):
            for model in used:
                _work(metrics, model)

        for name, accept in FORMATS.items():
            began = time.process_time()
            page.render(accept)
            first = (time.process_time() - began) * 1e3
            idle, text = _milliseconds(page, accept)
            busy, _ = _milliseconds(page, accept, work)
            sizes = f"{len(text):,} | {len(text.splitlines()):,}"
            print(f"| {num_models} | {num_used} | {name} | {sizes} | {first:.1f} | {idle:.1f} | {busy:.1f} |")


if __name__ == "__main__":
    _main()
