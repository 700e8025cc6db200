"""The overlays that deploy/README.md shows do what it says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from kubernetes_objects import is_of_dashboards, pod_labels, selecting, selectors
from weft_server.config import env_name
from weft_server.telemetry.metrics_table import PREFIX, TABLE

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = "kubernetes/base"
PLACEHOLDERS = {
    "github.com/<you>/weft/deploy/kubernetes/base": BASE,
    "<your registry>": "registry.test",
    "sha256:...": "sha256:" + "0" * 64,
}


def snippet(word):
    """The page's YAML that mentions the word, as a kustomization on top of the base."""
    blocks = re.findall(r"```yaml\n(.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
    (text,) = [block for block in blocks if word in block]
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    return {"resources": [BASE], **yaml.safe_load(text)}


@pytest.fixture
def render(tmp_path):
    """Render a kustomization beside copies of the folders that it needs.

    Answers its objects by kind, all of them valid, without the dashboards.
    """
    if shutil.which("kubectl") is None:
        # A green CI must mean that it was rendered; elsewhere the rest of the suite is worth running without it.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("kubectl is not installed; it renders the overlays")
    for folder in (BASE, "chart/weft/files/dashboards"):
        shutil.copytree(DEPLOY / folder, tmp_path / folder)

    def rendered(kustomization):
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        command = ["kubectl", "kustomize", str(tmp_path)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        documents = list(yaml.safe_load_all(output))
        for document in documents:
            kubernetes_validate.validate(document, str(kubernetes_validate.latest_version()), strict=True)
        return {each["kind"]: each for each in documents if not is_of_dashboards(each)}

    return rendered


def test_models_may_come_from_a_claim(render):
    """The claim's overlay drops the init container and mounts the claim read-only."""
    pod = render(snippet("persistentVolumeClaim"))["Deployment"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    assert "initContainers" not in pod
    assert {"claimName": "weft-models", "readOnly": True} == volumes["models"]["persistentVolumeClaim"]


def test_an_overlay_sets_namespace_images_and_settings(render):
    """The overlay's namespace and images are everywhere, and its setting joins the base's under a new name."""
    plain = render({"resources": [BASE]})["ConfigMap"]
    objects = render(snippet("namespace: translation"))
    pod = objects["Deployment"]["spec"]["template"]["spec"]

    assert {"translation"} == {document["metadata"]["namespace"] for document in objects.values()}
    assert all(each["image"].startswith("registry.test/") for each in [*pod["containers"], *pod["initContainers"]])
    assert plain["data"] | {"WEFT_SLOTS": "64"} == objects["ConfigMap"]["data"]
    assert plain["metadata"]["name"] != objects["ConfigMap"]["metadata"]["name"]


def test_two_releases_share_a_namespace(render):
    """Two overlays that differ in a name prefix: each object selects its own pods, and none of the other."""
    blue, green = (list(render({"resources": [BASE], "namePrefix": prefix}).values()) for prefix in ("blue-", "green-"))

    for release, other in ((blue, green), (green, blue)):
        marked = {tuple(each["metadata"]["labels"].values()) for each in release if each["kind"] != "ConfigMap"}

        assert {tuple(pod_labels(release).values())} == marked
        assert selecting(release, pod_labels(release)) == set(selectors(release))
        assert selecting(release, pod_labels(other)) == set()


def test_a_pod_may_speak_tls_and_ask_for_tokens(render):
    """Settings name mounted files, which only the pod reads; probes speak HTTPS."""
    objects = render(snippet("WEFT_TLS_CERT"))
    pod = objects["Deployment"]["spec"]["template"]
    (server,) = pod["spec"]["containers"]
    data = objects["ConfigMap"]["data"]
    settings = {field: data[env_name(field)] for field in ("tls_cert", "tls_key", "tokens")}
    mounts = {mount["mountPath"]: mount["name"] for mount in server["volumeMounts"] if mount.get("readOnly")}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    secrets = {field: volumes[mounts[str(Path(path).parent)]]["secret"] for field, path in settings.items()}
    probes = {kind: server[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    port = next(port["name"] for port in server["ports"] if port["containerPort"] == 7071)

    assert {"tls_cert": "weft-tls", "tls_key": "weft-tls", "tokens": "weft-tokens"} == {
        field: secret["secretName"] for field, secret in secrets.items()
    }
    assert {0o440} == {secret["defaultMode"] for secret in secrets.values()}
    assert pod["spec"]["securityContext"]["fsGroup"]
    assert {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"} == {
        kind: probe["httpGet"]["path"] for kind, probe in probes.items()
    }
    assert {(port, "HTTPS")} == {(probe["httpGet"]["port"], probe["httpGet"]["scheme"]) for probe in probes.values()}
    assert "https" == pod["metadata"]["annotations"]["prometheus.io/scheme"]
    assert "appProtocol" not in objects["Service"]["spec"]["ports"][0]


def test_a_pod_may_ask_for_a_gpu(render):
    """The GPU's overlay gives the server one device and tells it to use it; the base's limits stay."""
    plain = render({"resources": [BASE]})["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    objects = render(snippet("nvidia.com"))
    (server,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]

    assert plain["resources"]["limits"] | {"nvidia.com/gpu": "1"} == server["resources"]["limits"]
    assert "cuda" == objects["ConfigMap"]["data"]["WEFT_DEVICE"]


def test_the_autoscaler_may_follow_the_queue(render):
    """The queue's overlay scales by a gauge that the server has."""
    (metric,) = render(snippet("kind: HorizontalPodAutoscaler"))["HorizontalPodAutoscaler"]["spec"]["metrics"]

    assert metric["pods"]["metric"]["name"] in {PREFIX + spec.name for spec in TABLE if spec.kind == "gauge"}
