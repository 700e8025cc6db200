"""Envoy's configuration parses, and agrees with the contracts and with the server that it stands before."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from weft_proto.v1.methods import SERVICES
from weft_server.config import ServerConfig
from weft_server.rpc.grpc_server import MIN_PING_INTERVAL_MS
from weft_server.rpc.health import ACCEPTING

ROOT = Path(__file__).parents[2]
ENVOY = ROOT / "deploy/envoy"


@pytest.fixture
def resources():
    """The listener and the cluster."""
    return yaml.safe_load((ENVOY / "envoy.yaml").read_text())["static_resources"]


@pytest.fixture
def manager(resources):
    """What the listener does with HTTP."""
    (listener,) = resources["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


@pytest.fixture
def defaults():
    """The server's settings where nobody says otherwise."""
    return {name: field.default for name, field in ServerConfig.model_fields.items()}


def test_json_reaches_every_service(manager):
    """The transcoder names every service but the admin port's, and stands behind gRPC-Web and before the router."""
    named = re.findall(
        r"^service (\w+)", "".join(path.read_text() for path in ROOT.glob("proto/weft_proto/v1/*.proto")), re.MULTILINE
    )
    filters = {each["name"].rsplit(".", 1)[1]: each["typed_config"] for each in manager["http_filters"]}

    assert ["cors", "grpc_web", "grpc_json_transcoder", "router"] == list(filters)
    public = {f"weft.v1.{name}" for name in named if not name.endswith("AdminService")}
    assert set(SERVICES) == public == set(filters["grpc_json_transcoder"]["services"])


def test_the_descriptor_set_is_complete(tmp_path, monkeypatch):
    """It has every service, the details of errors, and each file behind those that it imports."""
    monkeypatch.setattr(sys, "argv", ["descriptors.py", str(tmp_path / "weft.pb")])
    runpy.run_path(str(ENVOY / "descriptors.py"), run_name="__main__")
    files = FileDescriptorSet.FromString((tmp_path / "weft.pb").read_bytes()).file

    assert set(SERVICES) == {f"{file.package}.{service.name}" for file in files for service in file.service}
    assert "google/rpc/error_details.proto" in [file.name for file in files]
    for position, file in enumerate(files):
        assert set(file.dependency) <= {before.name for before in files[:position]}


def test_it_fits_the_server(resources, defaults):
    """Port, largest request, pings and the health service that a drain changes are the server's."""
    (listener,), (cluster,) = resources["listeners"], resources["clusters"]
    (server,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    (http,) = cluster["typed_extension_protocol_options"].values()
    ping = http["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]["interval"]
    (check,) = cluster["health_checks"]

    assert defaults["port"] == server["endpoint"]["address"]["socket_address"]["port_value"]
    assert defaults["max_request_bytes"] == listener["per_connection_buffer_limit_bytes"]
    assert MIN_PING_INTERVAL_MS <= 1000 * int(ping.removesuffix("s"))
    assert ACCEPTING == check["grpc_health_check"]["service_name"]


def test_the_commented_tls_part_parses():
    """Without its comment signs it is the TLS of the one listener's filter chain."""
    text = re.sub(r"^( +)# (?=transport_socket:|  )", r"\1", (ENVOY / "envoy.yaml").read_text(), flags=re.MULTILINE)
    (chain,) = yaml.safe_load(text)["static_resources"]["listeners"][0]["filter_chains"]

    assert "h2" in chain["transport_socket"]["typed_config"]["common_tls_context"]["alpn_protocols"]
