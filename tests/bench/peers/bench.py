"""`make bench-peers`: Weft, served, against other systems in process, on the same weights. Figures, not tests."""

import argparse
import json
import sys
from pathlib import Path

# Run as a script: what benchmarks share lies above.
sys.path.append(str(Path(__file__).parents[1]))

from agreement import agreement
from contest import compete, contenders, result, weft_of
from machine import machine
from prepare import prepare
from report import table, verdicts
from search import Task
from systems import OUT, SYSTEMS
from workloads import WORKLOADS

CHOSEN = OUT / "chosen.json"
# Requests of a round by workload and number in flight: in full, and with --quick. Some seconds and more.
NUM_REQUESTS = {
    ("a", 64): (512, 192),
    ("b", 64): (512, 256),
    ("c", 1): (8, 2),
    ("c", 8): (32, 16),
    ("c", 32): (128, 64),
    ("c", 64): (192, 64),
    ("d", 32): (256, 96),
    ("e", 8): (64, 24),
}
NUM_ROUNDS = {"a": 5, "b": 5, "c": 3, "d": 5, "e": 5}
# With --quick: which numbers in flight, and how many of a system's configurations are tried.
QUICK_IN_FLIGHT, QUICK_SETTINGS = (1, 8, 32, 64), 2


def main():
    """Measure what was asked for; print a RESULT line for each figure as it comes, and the tables."""
    options = _options()
    facts = machine()
    print("RESULT", json.dumps({"machine": facts}), flush=True)
    chosen = json.loads(CHOSEN.read_text()) if options.again and CHOSEN.is_file() else {}
    results = []
    for name in options.workloads:
        workload = WORKLOADS[name]
        for precision in prepare(workload.shape, options.precisions, keep=options.keep_bundles):
            for in_flight in options.in_flight or workload.in_flight:
                if (name, in_flight) in NUM_REQUESTS:
                    results += _measure(Task(workload, precision, in_flight), options, facts["cpus"], chosen)
                    CHOSEN.write_text(json.dumps(chosen, indent=1))
    print(f"\n{table(results)}\n\n{verdicts(results)}")


def _measure(task, options, num_cpus, chosen):
    systems = [SYSTEMS[name] for name in options.systems]
    systems = [each for each in systems if task.workload.name in each.workloads and task.precision in each.precisions]
    num_requests = NUM_REQUESTS[task.workload.name, task.in_flight][options.quick]
    sample = min(num_requests, 2 * task.in_flight)
    found = contenders(task, systems, num_cpus, sample, chosen, num_settings=QUICK_SETTINGS if options.quick else None)
    num_rounds = options.rounds or (3 if options.quick else NUM_ROUNDS[task.workload.name])
    outputs = compete(task, found, task.workload.requests(num_requests), num_rounds)
    results = []
    for contender in found:
        name = contender.system.name
        if "weft" in outputs and name != "weft":
            print(f"{task}: {name}: {agreement(task.workload, outputs['weft'], outputs[name])}", flush=True)
        results.append(result(task, contender, weft_of(found)))
        print("RESULT", json.dumps(results[-1]), flush=True)
    return results


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests and configurations; ten minutes")
    parser.add_argument("--workloads", type=_names, default=list(WORKLOADS), help="such as a,c")
    parser.add_argument("--systems", type=_names, default=list(SYSTEMS), help="such as weft,ctranslate2")
    parser.add_argument("--precisions", type=_names, default=["fp32", "int8"], help="fp32, int8 or both")
    parser.add_argument("--in-flight", type=_numbers, help="such as 1,32; default: each workload's own")
    parser.add_argument("--rounds", type=int, help="default: three to five")
    parser.add_argument("--again", action="store_true", help=f"take the configurations that {CHOSEN.name} remembers")
    parser.add_argument("--keep-bundles", action="store_true", help="do not export again when the exporter changed")
    return parser.parse_args()


def _names(text):
    return text.split(",")


def _numbers(text):
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
