"""`make bench-peers`: Weft, served, against other systems in process, on the same weights. Figures, not tests."""

import argparse
import json
import sys
from pathlib import Path

# Run as a script: what benchmarks share lies above.
sys.path.append(str(Path(__file__).parents[1]))

from agreement import agreement, first_share
from contest import compete, contenders, result, weft_of
from machine import machine
from prepare import prepare
from report import table, verdicts
from search import Task
from systems import OUT, SYSTEMS
from workloads import WORKLOADS

CHOSEN = OUT / "chosen.json"
# Requests by workload and number in flight: of a round in full, of one with --quick, of a try of the search.
NUM_REQUESTS = {
    ("a", 64): (512, 128, 256),
    ("b", 64): (512, 192, 256),
    ("c", 1): (8, 2, 4),
    ("c", 8): (32, 16, 32),
    ("c", 32): (128, 32, 64),
    ("c", 64): (192, 128, 128),
    ("d", 32): (256, 64, 128),
    ("e", 8): (64, 16, 32),
    ("f", 16): (192, 64, 96),
    ("g", 1): (16, 8, 8),
    ("g", 8): (32, 16, 16),
    ("h", 16): (2048, 512, 1024),
    ("i", 16): (48, 16, 16),
}
NUM_ROUNDS = {"a": 5, "b": 5, "c": 3, "d": 5, "e": 5, "f": 5, "g": 3, "h": 5, "i": 5}
# Left out by --quick unless it is told which systems: vLLM takes a minute or two to start for each task, transformers a
# minute to write what others write in seconds.
SLOW = {("c", "vllm"), ("c", "vllm-zentorch"), ("c", "transformers")}
# What --quick measures unless it is told which: workload, precision, in flight.
QUICK = {
    ("a", "fp32", 64),
    ("a", "int8", 64),
    ("b", "fp32", 64),
    ("b", "int8", 64),
    ("c", "fp32", 32),
    ("c", "int8", 32),
    ("c", "int8", 1),
    ("c", "int4", 1),
    ("d", "fp32", 32),
    ("e", "fp32", 8),
    ("f", "fp32", 16),
    ("f", "int8", 16),
    ("g", "fp32", 1),
    ("g", "fp32", 8),
    ("g", "int8", 1),
    ("g", "int8", 8),
    ("h", "fp32", 16),
    ("h", "int8", 16),
    ("i", "fp32", 16),
    ("i", "int8", 16),
}


def main():
    """Measure what was asked for; print a RESULT line for each figure as it comes, and the tables."""
    options = _options()
    facts = machine()
    print("RESULT", json.dumps({"machine": facts}), flush=True)
    remembered = json.loads(CHOSEN.read_text()) if CHOSEN.is_file() else {}
    searches = options.search or not options.quick
    chosen = dict(remembered) if options.again or not searches else {}
    results = []
    for task in _tasks(options):
        if prepare(task.workload.shape, task.precision, keep=options.keep_bundles):
            results += _measure(task, options, facts["cpus"], chosen)
            if searches:
                CHOSEN.write_text(json.dumps(remembered | chosen, indent=1))
    print(f"\n{table(results)}\n\n{verdicts(results)}")


def _tasks(options):
    for name in options.workloads:
        for precision in options.precisions:
            for in_flight in options.in_flight or WORKLOADS[name].in_flight:
                quick = not options.quick or options.in_flight or (name, precision, in_flight) in QUICK
                if quick and in_flight in WORKLOADS[name].in_flight and len(_takers(name, precision)) > 1:
                    yield Task(WORKLOADS[name], precision, in_flight)


def _takers(workload, precision):
    """The systems that do a workload at a precision. Where Weft is alone there is nothing to compare."""
    return [each for each in SYSTEMS.values() if workload in each.workloads and precision in each.precisions]


def _measure(task, options, num_cpus, chosen):
    systems = [SYSTEMS[name] for name in options.systems or SYSTEMS]
    if options.quick and not options.systems:
        systems = [each for each in systems if (task.workload.name, each.name) not in SLOW]
    systems = [each for each in systems if each in _takers(task.workload.name, task.precision)]
    guesses = options.quick and not options.search
    if guesses and not all(f"{task}: {system.name}" in chosen for system in systems):
        chosen = {}  # what was searched for one would be held against what the other proposes first
    full, quick, sample = NUM_REQUESTS[task.workload.name, task.in_flight]
    num_requests = quick if options.quick else full
    if options.search:
        sample = min(sample, quick)
    found = contenders(task, systems, num_cpus, sample, chosen, quick=guesses)
    num_rounds = options.rounds or (3 if options.quick else NUM_ROUNDS[task.workload.name])
    found, outputs = compete(task, found, task.workload.requests(num_requests), num_rounds)
    results = []
    for contender in found:
        name = contender.system.name
        if "weft" in outputs and name != "weft":
            print(f"{task}: {name}: {agreement(task.workload, outputs['weft'], outputs[name])}", flush=True)
        figures = result(task, contender, weft_of(found))
        if "weft" in outputs and task.precision == "fp32":
            figures["first_share"] = first_share(task.workload, outputs["weft"], outputs[name])
        results.append(figures)
        print("RESULT", json.dumps(results[-1]), flush=True)
    return results


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten minutes: fewer requests, no search")
    parser.add_argument("--search", action="store_true", help="with --quick: search all the same, on as few requests")
    parser.add_argument("--workloads", type=_names, default=list(WORKLOADS), help="such as a,c")
    parser.add_argument("--systems", type=_names, default=[], help="such as weft,ctranslate2")
    parser.add_argument("--precisions", type=_names, default=["fp32", "int8", "int4"], help="such as int8,int4")
    parser.add_argument("--in-flight", type=_numbers, help="such as 1,32; default: each workload's own")
    parser.add_argument("--rounds", type=int, help="default: three to five")
    parser.add_argument("--again", action="store_true", help=f"take the configurations that {CHOSEN.name} remembers")
    parser.add_argument("--keep-bundles", action="store_true", help="do not export again when the exporter changed")
    options = parser.parse_args()
    for chosen, known in ((options.workloads, WORKLOADS), (options.systems, SYSTEMS)):
        if strangers := sorted(set(chosen) - set(known)):
            parser.error(f"there is no {', '.join(strangers)}; there are {', '.join(known)}")
    return options


def _names(text):
    return text.split(",")


def _numbers(text):
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
