"""What traces cost a server: its processor time a request, with traces off, with one call of a hundred, and with all.

For a still machine: of many turns the least counts. The three servers run at once and are asked in turn. A receiver of
OTLP takes what they send.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/bench")]

from pair import cpu_us

from otlp_receiver import receiving
from process import ServerProcess

WEFT = Path(sys.executable).with_name("weft")
ROUNDS = 9
LOADS = {
    "topics": ["--requests", "2000"],
    "en-es": ["--requests", "250", "--input-tokens", "12", "--output-tokens", "20"],
}
SERVERS = {
    "off": None,
    "1 % of the calls": "0.01",
    "all calls": "1.0",
}


def _started(stack, repository, endpoint, share):
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": share,
    }
    os.environ |= variables if share else {}
    server = stack.enter_context(ServerProcess(repository))
    for name in variables:
        os.environ.pop(name, None)
    server.wait_for("ready")
    return server


def _asked(server, model, load):
    before = cpu_us(server.process.pid)
    command = [WEFT, "bench", "--json", "-t", server.target, "--model", model, "-c", "4", "--warmup", "0", *load]
    subprocess.run(command, check=True, capture_output=True)
    return (cpu_us(server.process.pid) - before) / int(load[1])


def _main():
    with ExitStack() as stack:
        repository = Path(stack.enter_context(TemporaryDirectory()))
        for model in LOADS:
            (repository / model).symlink_to(ROOT / "build/models" / model)
        endpoint = stack.enter_context(receiving()).target
        servers = {name: _started(stack, repository, endpoint, share) for name, share in SERVERS.items()}
        print("| model | traces | a request takes, us | over none |")
        print("|---|---|---|---|")
        for model, load in LOADS.items():
            rounds = [{name: _asked(server, model, load) for name, server in servers.items()} for _ in range(ROUNDS)]
            for name in SERVERS:
                took, none = (min(each[of] for each in rounds) for of in (name, "off"))
                print(f"| {model} | {name} | {took:.0f} | {took / none - 1:+.1%} |")


if __name__ == "__main__":
    _main()
