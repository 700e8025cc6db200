"""The Kubernetes base renders, is valid, and agrees with the server that it deploys."""

import json
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from kubernetes_objects import is_of_dashboards
from weft_server.config import ENV_PREFIX, ServerConfig, env_name
from weft_server.process.shutdown import MARGIN_S

BASE = Path(__file__).parents[2] / "deploy/kubernetes/base"
DASHBOARDS = BASE.parents[1] / "chart/weft/files/dashboards"
OLDEST_SUPPORTED = "1.30"


def all_containers(pod):
    """Those that run before the server, and the server."""
    return [*pod["initContainers"], *pod["containers"]]


@pytest.fixture(scope="module")
def rendered():
    """What `kubectl kustomize` renders."""
    if shutil.which("kubectl") is None:
        # A green CI must mean that it was rendered; elsewhere the rest of the suite is worth running without it.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("kubectl is not installed; it renders the base")
    output = subprocess.run(["kubectl", "kustomize", str(BASE)], check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(output))


@pytest.fixture(scope="module")
def objects(rendered):
    """The same by kind, without the dashboards."""
    return {each["kind"]: each for each in rendered if not is_of_dashboards(each)}


@pytest.fixture(scope="module")
def pod(objects):
    """The pod's specification."""
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def server(pod):
    """The one container beside which no sidecar runs."""
    (container,) = pod["containers"]
    return container


@pytest.fixture(scope="module")
def settings():
    """The server's environment variables as a pod gets them."""
    lines = (BASE / "weft.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture
def config(settings, monkeypatch):
    """What the server makes of them."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return ServerConfig()


def test_the_base_holds_what_a_deployment_needs(objects):
    """One object of each kind, and nothing unexpected."""
    expected = {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler"}

    assert expected == set(objects)


@pytest.mark.parametrize("kubernetes", [OLDEST_SUPPORTED, str(kubernetes_validate.latest_version())])
def test_every_object_is_valid(rendered, kubernetes):
    """Each object satisfies the strict schema of the oldest and of the newest Kubernetes: no unknown field."""
    for document in rendered:
        kubernetes_validate.validate(document, kubernetes, strict=True)


def test_the_dashboards_are_all_there(rendered):
    """One ConfigMap has each file of dashboards as it is, and the label by which Grafana's sidecar finds it.

    `kubectl apply` writes each object into an annotation too, which may have 262,144 bytes.
    """
    (found,) = filter(is_of_dashboards, rendered)
    files = {f"weft-{path.name}": path.read_text() for path in DASHBOARDS.glob("*.json")}

    assert files == found["data"]
    assert "1" == found["metadata"]["labels"]["grafana_dashboard"]
    assert len(json.dumps(found)) < 262_144


def test_validation_is_strict(objects):
    """A misspelt field is an error, so the test above means something."""
    misspelt = objects["Deployment"] | {"spek": {}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, OLDEST_SUPPORTED, strict=True)


def test_settings_are_fields_of_the_servers_config(settings, objects):
    """The ConfigMap sets nothing but documented environment variables of the server."""
    documented = {env_name(field) for field in ServerConfig.model_fields}

    assert settings == objects["ConfigMap"]["data"]
    assert set(settings) <= documented


def test_the_server_accepts_the_settings(config):
    """The server's own reader takes every value, and listens where a pod is reached."""
    assert "0.0.0.0" == config.host
    assert "json" == config.log_format


def test_settings_come_from_the_config_map_alone(objects, server):
    """The container has no second source of settings, and service links cannot inject WEFT_PORT=tcp://..."""
    pod = objects["Deployment"]["spec"]["template"]["spec"]

    assert [{"configMapRef": {"name": objects["ConfigMap"]["metadata"]["name"]}}] == server["envFrom"]
    assert not any(entry["name"].startswith(ENV_PREFIX) for entry in server.get("env", []))
    assert pod["enableServiceLinks"] is False


def test_a_pod_gets_the_time_to_drain(pod, config):
    """The kubelet waits longer than the server's drain delay and drain timeout together, by a margin."""
    assert pod["terminationGracePeriodSeconds"] >= config.drain_delay_s + config.drain_timeout_s + MARGIN_S


def test_endpoints_notice_before_the_server_refuses(config):
    """A draining pod serves on while its address leaves DNS and the clients' lists."""
    assert config.drain_delay_s >= 5


def test_probes_ask_the_right_question(server, config):
    """Readiness asks for all models, the others for none: a pod that drains, or refused a bundle, must not be killed.

    None asks at the port of calls: callers may fill it.
    """
    asked = {kind: server[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}

    assert {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"} == {
        kind: probe["path"] for kind, probe in asked.items()
    }
    assert {config.http_port} == {ports[probe["port"]] for probe in asked.values()}


def test_ports_agree(objects, server, config):
    """Container, Service and scrape annotation name the ports that the settings open."""
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    annotations = objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]

    assert {"grpc": config.port, "http": config.http_port} == ports
    assert str(config.http_port) == annotations["prometheus.io/port"]
    assert "/metrics" == annotations["prometheus.io/path"]
    assert [("grpc", config.port)] == [(p["targetPort"], p["port"]) for p in objects["Service"]["spec"]["ports"]]


def test_clients_see_every_pod(objects):
    """The Service is headless and lists ready pods only, so that round_robin balances call by call."""
    spec = objects["Service"]["spec"]

    assert "None" == spec["clusterIP"]
    assert not spec.get("publishNotReadyAddresses", False)


def test_selectors_find_the_pods(objects):
    """Service, Deployment, disruption budget and topology spread select the pods that the Deployment makes."""
    template = objects["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    spreads = template["spec"]["topologySpreadConstraints"]

    assert labels == objects["Deployment"]["spec"]["selector"]["matchLabels"]
    assert labels == objects["Service"]["spec"]["selector"]
    assert labels == objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    assert all(labels == spread["labelSelector"]["matchLabels"] for spread in spreads)


def test_the_autoscaler_scales_the_deployment(objects):
    """The autoscaler aims at the Deployment, which leaves the number of pods to it; one pod may always go."""
    autoscaler = objects["HorizontalPodAutoscaler"]["spec"]
    deployment = objects["Deployment"]

    assert deployment["metadata"]["name"] == autoscaler["scaleTargetRef"]["name"]
    assert "replicas" not in deployment["spec"]
    assert autoscaler["minReplicas"] > objects["PodDisruptionBudget"]["spec"]["maxUnavailable"]


def test_containers_are_locked_down(pod):
    """No container runs as root, writes its root file system, gains privileges or keeps a capability."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] >= 10_000
    assert "RuntimeDefault" == pod["securityContext"]["seccompProfile"]["type"]
    assert pod["automountServiceAccountToken"] is False
    for container in all_containers(pod):
        context = container["securityContext"]

        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert ["ALL"] == context["capabilities"]["drop"]


def test_resources_are_whole(server):
    """The CPU limit is whole and equals the request, because the server sizes its threads by it; memory is capped."""
    requests, limits = server["resources"]["requests"], server["resources"]["limits"]

    assert requests["cpu"] == limits["cpu"]
    assert re.fullmatch(r"[1-9][0-9]*", limits["cpu"])
    assert "memory" in requests
    assert "memory" in limits


def test_the_server_reads_models_that_it_cannot_write(pod, server, config):
    """One volume: the init container writes the repository, the server mounts it read-only where its settings say."""
    (init,) = pod["initContainers"]
    written = {mount["name"] for mount in init["volumeMounts"]}
    mounts = {mount["mountPath"]: mount for mount in server["volumeMounts"]}

    assert mounts[str(config.repository)]["readOnly"] is True
    assert {mounts[str(config.repository)]["name"]} == written


def test_images_are_versioned(pod):
    """The server's image has the version of the distribution, and no image is `latest` or untagged."""
    tags = {container["name"]: container["image"].partition(":")[2] for container in all_containers(pod)}

    assert version("weft-serving") == tags["weft"]
    assert tags["models"] not in {"", "latest"}
