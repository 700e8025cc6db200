"""Grafana's dashboards: what is committed is what the table makes, and each query gives samples of a real server."""

import json
import re
import sys
import threading
from contextlib import suppress
from math import isnan
from pathlib import Path

import grpc
import pytest

from process import ServerProcess
from real_prometheus import Prometheus, needs_prometheus
from weft_proto.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    common_pb2,
    generation_pb2,
    generation_pb2_grpc,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import dashboards  # noqa: E402

TOKEN = "caller-token-0123456"
ASKED = (
    generation_pb2.GenerateRequest(text="def read the named file", decoding=common_pb2.Decoding(max_new_tokens=5)),
    generation_pb2.GenerateRequest(text="def read", model=common_pb2.ModelSelector(name="nothing")),
)


def queries(name):
    """Those of a dashboard as it is committed."""
    panels = json.loads((dashboards.FOLDER / f"{name}.json").read_text())["panels"]
    return {panel["title"]: panel["targets"][0]["expr"] for panel in panels if panel["type"] != "row"}


def in_prometheus(query):
    """The query with what Grafana puts in the place of its variables."""
    return re.sub(r"\$(namespace|pod|model)", ".*", query.replace("$__rate_interval", "10s"))


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_what_is_committed_is_what_the_table_makes(name):
    """After a change: `python deploy/dashboards.py`."""
    assert dashboards.dashboard(name) == (dashboards.FOLDER / f"{name}.json").read_text()


def test_every_query_matches_what_is_chosen():
    """Namespace and pod always, and the model where a metric has one."""
    for name in dashboards.DASHBOARDS:
        for query in queries(name).values():
            assert [] == [each for each in re.findall(r"\{([^}]*)\}", query) if "$namespace" not in each]
    assert 'weft_requests_total{namespace=~"$namespace",pod=~"$pod",model=~"$model"}' in queries("overview")["Calls"]


@needs_prometheus
@pytest.mark.e2e
def test_every_query_gives_samples(demo_repository, tmp_path):
    """Of a real server under load, which refuses some, by a real Prometheus."""
    repository = tmp_path / "models"
    repository.mkdir()
    for name in ("pydocs", "topics"):
        (repository / name).symlink_to(demo_repository / name)
    (tmp_path / "tokens").write_text(f"caller call,metrics {TOKEN} models=pydocs,topics\n")
    (tmp_path / "tokens").chmod(0o600)
    done = threading.Event()
    with ServerProcess(repository, tokens=tmp_path / "tokens") as server:
        server.wait_for("ready")

        def load():
            metadata = [("authorization", f"Bearer {TOKEN}")]
            with grpc.insecure_channel(server.target) as channel:
                writer = generation_pb2_grpc.GenerationServiceStub(channel)
                reader = classification_pb2_grpc.ClassificationServiceStub(channel)
                while not done.wait(0.1):
                    for request in ASKED:
                        with suppress(grpc.RpcError):
                            writer.Generate(request, metadata=metadata)
                    reader.Classify(classification_pb2.ClassifyRequest(text="open the file"), metadata=metadata)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            with Prometheus(tmp_path, server.http, token=TOKEN) as prometheus:
                missing = {
                    f"{name}: {title}": each for name in dashboards.DASHBOARDS for title, each in queries(name).items()
                }

                def all_are_there():
                    for title, query in list(missing.items()):
                        values = [float(each["value"][1]) for each in prometheus.values(in_prometheus(query))]
                        if any(not isnan(value) for value in values):
                            del missing[title]
                    return not missing

                prometheus.wait_until(all_are_there, missing)
        finally:
            done.set()
            thread.join()
