"""The examples for others' controllers fit the server. No cluster has run them."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from custom_resources import faults
from weft_server.config import ServerConfig
from weft_server.process.shutdown import MARGIN_S
from weft_server.telemetry.metrics_table import PREFIX, TABLE

EXAMPLES = Path(__file__).parents[2] / "deploy/kubernetes/examples"


def objects(name):
    """Its objects, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / name).read_text())}


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.iterdir())])
def test_every_object_has_what_its_kind_requires(name):
    """Version and fields are those of its definition, as far as we wrote that down."""
    assert [] == [fault for each in objects(name).values() for fault in faults(each)]


def test_a_serving_runtime_is_a_pod_that_serves(monkeypatch):
    """KServe makes a pod of it: valid to Kubernetes, with settings that the server takes, and time to drain."""
    kinds = objects("serving-runtime.yaml")
    spec = kinds["ServingRuntime"]["spec"]
    pod = {"containers": spec["containers"], "volumes": spec["volumes"]}
    (server,) = spec["containers"]
    for variable in server["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    config = ServerConfig()
    predictor = kinds["InferenceService"]["spec"]["predictor"]

    kubernetes_validate.validate(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "weft"}, "spec": pod}, "1.30", strict=True
    )
    assert [("h2c", config.port)] == [(port["name"], port["containerPort"]) for port in server["ports"]]
    assert Path("/mnt/models") == config.repository
    assert str(config.http_port) == spec["annotations"]["prometheus.kserve.io/port"]
    assert config.drain_delay_s + config.drain_timeout_s + MARGIN_S <= predictor["terminationGracePeriodSeconds"]
    assert spec["supportedModelFormats"][0]["name"] == predictor["model"]["modelFormat"]["name"]


def test_an_endpoint_picker_reads_gauges_that_the_server_has():
    """The pool's flags name gauges of the table, and the port on which they are."""
    text = (EXAMPLES / "inference-pool.yaml").read_text()
    named = dict(re.findall(r"--([\w-]+)=(\w+)", text))
    gauges = {PREFIX + spec.name for spec in TABLE if spec.kind == "gauge"}

    assert {value for flag, value in named.items() if flag.endswith("-metric")} <= gauges
    assert 4 == len(named)
    assert str(ServerConfig.model_fields["http_port"].default) == named["model-server-metrics-port"]
