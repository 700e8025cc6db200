"""The chart renders, is valid, and agrees with the server that it deploys. Helm's own library renders it."""

import json
import os
import re
import runpy
from itertools import chain
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from chart_cases import ALWAYS, CASES
from custom_resources import DEFINITIONS, faults
from kubernetes_objects import pod_labels, selecting, selectors
from rendered_charts import CHART, FETCHED, render
from weft_server.config import ServerConfig, env_name
from weft_server.process.shutdown import MARGIN_S
from weft_server.telemetry.metrics_table import PREFIX, TABLE

VERSIONS = ["1.30", "1.35", str(kubernetes_validate.latest_version())]
# Every setting, with its default where it has one.
SETTINGS = {name: field.default for name, field in ServerConfig.model_fields.items()} | {
    "repository": "/models",
    "api_port": 8000,
    "cors_origins": "https://a.org,https://b.org",
    "tenant_key": "x-tenant",
    "tenant_weights": "search=4,nightly=0.5",
    "tls_cert": "/tls/cert.pem",
    "tls_key": "/tls/key.pem",
    "tls_client_ca": "/tls/ca.pem",
    "tokens": "/tokens",
}
LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# What is refused, and a word of the reason.
WRONG = {
    "unknown-setting": ({"settings": {"slotz": 64}}, "slotz"),
    "unknown-value": ({"replica": 2}, "replica"),
    "text-for-number": ({"settings": {"slots": "many"}}, "slots"),
    "out-of-range": ({"settings": {"slots": 0}}, "slots"),
    "any-port": ({"settings": {"port": 0}}, "port"),
    "no-drain": ({"settings": {"drain_delay_s": None}}, "drain_delay_s"),
    "mutual-alone": ({"tls": {"mutual": True}}, "certificate"),
    "unscraped-certificates": (
        {"tls": {"secretName": "cert", "mutual": True}, "podMonitor": {"enabled": True, "authorization": {"a": "b"}}},
        "refuse each scrape",
    ),
    "unscraped-tokens": (
        {"tokens": {"secretName": "callers"}, "podMonitor": {"enabled": True, "tls": {"a": "b"}}},
        "refuse each scrape",
    ),
    "unscraped": (
        {
            "tls": {"secretName": "cert", "mutual": True},
            "tokens": {"secretName": "callers"},
            "podMonitor": {"enabled": True},
        },
        "refuse each scrape",
    ),
    "no-issuer": ({"tls": {"certificate": {"enabled": True}}}, "issuerRef"),
    "no-claim": ({"models": {"source": "claim"}}, "claimName"),
    "odd-source": ({"models": {"source": "bucket"}}, "source"),
    "two-scalers": ({"autoscaling": {"enabled": True}, "keda": {"enabled": True, "serverAddress": "x"}}, "choose one"),
    "no-signal": ({"autoscaling": {"enabled": True, "cpuUtilization": 0}}, "queuedRequests"),
    "no-prometheus": ({"keda": {"enabled": True}}, "serverAddress"),
    "no-pod": ({"autoscaling": {"minReplicas": 0}}, "minReplicas"),
    "no-pod-at-most": ({"autoscaling": {"maxReplicas": 0}}, "maxReplicas"),
    "keda-no-pod": ({"keda": {"minReplicas": 0}}, "minReplicas"),
    "keda-no-pod-at-most": ({"keda": {"maxReplicas": 0}}, "maxReplicas"),
    "keda-no-queue": ({"keda": {"queuedRequests": 0}}, "queuedRequests"),
    "no-start": ({"startupSeconds": 0}, "startupSeconds"),
    "no-gateway": ({"grpcRoute": {"enabled": True}}, "parentRefs"),
    "no-api-port": ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}}, "api_port"),
}


@pytest.fixture(scope="module")
def rendered():
    """Each case of this file, rendered: its objects, or why it is refused."""
    if not FETCHED.exists():
        # A green CI must mean that it was rendered; elsewhere the rest of the suite is worth running without it.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Helm: say `make helm`")
    valid = {name: values for name, (values, _) in CASES.items()} | {"settings": {"settings": SETTINGS}}
    valid["page"] = values_of_the_page()
    return render(valid | {name: values for name, (values, _) in WRONG.items()})


def values_of_the_page():
    """The values that deploy/README.md shows."""
    (block,) = re.findall(
        r"```yaml\n# values.yaml of yours\n(.*?)```", (CHART.parents[1] / "README.md").read_text(), re.DOTALL
    )
    return yaml.safe_load(block)


def by_kind(objects):
    """One object of each kind: of Services, the headless one, and no dashboards."""
    return {each["kind"]: each for each in objects if not each["metadata"]["name"].endswith(("-http", "-dashboards"))}


def pod_of(objects):
    """The pod's specification, and its one container."""
    pod = by_kind(objects)["Deployment"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    return pod, server


def config_of(objects, monkeypatch):
    """What the server makes of the variables."""
    for name, value in by_kind(objects)["ConfigMap"]["data"].items():
        monkeypatch.setenv(name, value)
    return ServerConfig()


def test_the_schema_is_of_these_values_and_settings():
    """values.schema.json is what deploy/chart/values_schema.py writes today."""
    made = runpy.run_path(str(CHART.parent / "values_schema.py"))["schema"]()

    assert made == json.loads((CHART / "values.schema.json").read_text())


def test_the_versions_are_the_distributions():
    """Chart and server have the version of pyproject.toml."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (CHART.parents[2] / "pyproject.toml").read_text(), re.MULTILINE)[1]

    assert {version} == {chart["version"], chart["appVersion"]}


@pytest.mark.parametrize("case", CASES)
def test_a_case_brings_its_kinds(rendered, case):
    """Helm's linter finds nothing, and the objects are those that the values ask for."""
    kinds = {each["kind"] for each in rendered[case]}

    assert ALWAYS | CASES[case][1] == (kinds | {"ServiceAccount"} if case == "gpu" else kinds)


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_every_object_is_valid(rendered, kubernetes):
    """Each object satisfies the strict schema of Kubernetes, whose versions before 1.31 have no image volumes."""
    cases = CASES.keys() - ({"image-volume"} if kubernetes == VERSIONS[0] else set())
    for each in chain.from_iterable(rendered[case] for case in cases):
        if each["kind"] not in DEFINITIONS:
            kubernetes_validate.validate(each, kubernetes, strict=True)


def test_every_custom_resource_has_what_its_kind_requires(rendered):
    """Each has the version and the fields of its definition. They are checked by hand: no API server has seen them."""
    custom = [each for case in CASES for each in rendered[case] if each["kind"] in DEFINITIONS]

    assert custom
    assert [] == [fault for each in custom for fault in faults(each)]


def test_the_page_shows_values_that_the_chart_takes(rendered):
    """The README's values are rendered: their setting is there, and so is their autoscaler."""
    objects = by_kind(rendered["page"])

    assert "64" == objects["ConfigMap"]["data"]["WEFT_SLOTS"]
    assert "weft_requests_queued" == objects["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_refused(rendered, case):
    """The schema or the chart says which value is wrong; nothing is rendered."""
    assert isinstance(rendered[case], str)
    assert WRONG[case][1] in rendered[case]


def test_the_server_reads_every_setting_as_it_was_given(rendered, monkeypatch):
    """Each setting of the server may stand in the values, and reaches it unchanged: large numbers and commas too."""
    config = config_of(rendered["settings"], monkeypatch)

    assert all(value is not None for value in SETTINGS.values())
    assert {env_name(name) for name in SETTINGS} == set(by_kind(rendered["settings"])["ConfigMap"]["data"])
    assert ServerConfig(**SETTINGS) == config
    assert 1_099_511_627_776 == config_of(rendered["gpu"], monkeypatch).max_held_bytes


def test_every_object_says_whose_it_is(rendered):
    """Its namespace and the labels that Kubernetes recommends, and its name begins with the release's."""
    wanted = {"app.kubernetes.io/name": "weft", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "weft-0.1.0"}
    begins = {"digests": "pinned", "weft-blue": "weft-blue", "longest": CASES["longest"][0]["fullnameOverride"]}
    for case in CASES:
        for each in (document["metadata"] for document in rendered[case]):
            labels = {"app.kubernetes.io/instance": case, "app.kubernetes.io/version": "0.1.0"} | wanted

            assert "translation" == each["namespace"]
            assert labels.items() <= each["labels"].items()
            assert re.fullmatch(f"({begins.get(case, f'{case}-weft')})(-http|-dashboards)?|serving", each["name"])
    assert "prometheus" == by_kind(rendered["observed"])["PodMonitor"]["metadata"]["labels"]["release"]


@pytest.mark.parametrize(("case", "grpc", "http"), [("api", "kubernetes.io/h2c", "http"), ("tls", None, "https")])
def test_clients_see_every_pod(rendered, case, grpc, http):
    """GRPC's Service is headless; that of HTTP has one address. Each says what its port speaks."""
    services = {each["metadata"]["name"]: each["spec"] for each in rendered[case] if each["kind"] == "Service"}
    headless, api = services[f"{case}-weft"], services[f"{case}-weft-http"]

    assert ("None", None) == (headless["clusterIP"], api.get("clusterIP"))
    assert [("grpc", 7070, grpc)] == [(p["targetPort"], p["port"], p.get("appProtocol")) for p in headless["ports"]]
    assert [("api", 8000, http)] == [(p["targetPort"], p["port"], p["appProtocol"]) for p in api["ports"]]


def test_two_releases_share_a_namespace(rendered):
    """Each object of a release selects the pods of its own, and of no other release."""
    for case in CASES:
        assert selecting(rendered[case], pod_labels(rendered[case])) == set(selectors(rendered[case]))
        for other in CASES.keys() - {case}:
            assert selecting(rendered[case], pod_labels(rendered[other])) == set(), (case, other)
            assert not names(rendered[case]) & names(rendered[other])


def names(objects):
    """What would be one object if two releases had it."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_is_locked_down_and_told_its_settings_alone(rendered, case):
    """No root, no writable root file system, no token of Kubernetes, and no setting beside the ConfigMap's."""
    pod, server = pod_of(rendered[case])

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert 10001 == pod["securityContext"]["runAsUser"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert [{"configMapRef": {"name": by_kind(rendered[case])["ConfigMap"]["metadata"]["name"]}}] == server["envFrom"]
    for container in [*pod.get("initContainers", []), server]:
        assert LOCKED == container["securityContext"]


@pytest.mark.parametrize("case", CASES)
def test_a_pod_fits_its_settings(rendered, case, monkeypatch):
    """Ports, time to drain, scheme of probes, and the folder of models are those of the server's settings."""
    config = config_of(rendered[case], monkeypatch)
    pod, server = pod_of(rendered[case])
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    mounts = {mount["mountPath"]: mount for mount in server["volumeMounts"]}
    probes = [server[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]

    assert {"grpc": config.port, "http": config.http_port, "api": config.api_port} == {"api": None} | ports
    assert pod["terminationGracePeriodSeconds"] >= config.drain_delay_s + config.drain_timeout_s + MARGIN_S
    assert {("http", "HTTPS" if config.tls_cert else "HTTP")} == {(each["port"], each["scheme"]) for each in probes}
    assert ["/livez", "/readyz", "/livez"] == [each["path"] for each in probes]
    assert mounts[str(config.repository)]["readOnly"] is True
    assert not [
        path for path in (config.tls_cert, config.tls_key, config.tokens) if path and str(path.parent) not in mounts
    ]


def test_secrets_are_files_that_the_pod_reads(rendered, monkeypatch):
    """The certificate and the tokens are mounted whole, for the pod's group alone, and stand in no variable."""
    pod, server = pod_of(rendered["tls"])
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}

    assert {"tls": "cert", "tokens": "callers"} == {name: secret["secretName"] for name, secret in secrets.items()}
    assert {0o440} == {secret["defaultMode"] for secret in secrets.values()}
    assert not [mount for mount in server["volumeMounts"] if mount["name"] in secrets and "subPath" in mount]
    assert "env" not in server
    assert Path("/credentials/tokens/tokens") == config_of(rendered["tls"], monkeypatch).tokens
    assert Path("/credentials/tls/ca.crt") == config_of(rendered["managed"], monkeypatch).tls_client_ca


def test_models_come_by_one_of_three_ways(rendered):
    """An init container fills an empty volume; or an image is the volume; or a claim is."""
    volumes = {case: pod_of(rendered[case])[0]["volumes"][0] for case in ("plain", "image-volume", "claim")}
    inits = [case for case in volumes if "initContainers" in pod_of(rendered[case])[0]]

    assert ["plain"] == inits
    assert [{"name": "models", "mountPath": "/repository"}] == pod_of(rendered["plain"])[0]["initContainers"][0][
        "volumeMounts"
    ]
    assert 10001 == pod_of(rendered["plain"])[0]["securityContext"]["fsGroup"]
    assert {"name": "models", "emptyDir": {}} == volumes["plain"]
    assert {"reference": "weft-models:1", "pullPolicy": "IfNotPresent"} == volumes["image-volume"]["image"]
    assert {"claimName": "models", "readOnly": True} == volumes["claim"]["persistentVolumeClaim"]


def test_a_certificate_is_for_the_names_of_the_services(rendered):
    """cert-manager writes the Secret that the pod mounts, for the target that clients are told."""
    objects = by_kind(rendered["managed"])
    spec = objects["Certificate"]["spec"]
    (endpoint,) = objects["PodMonitor"]["spec"]["podMetricsEndpoints"]

    assert {"managed-weft.translation", "managed-weft.translation.svc", "weft.test"} <= set(spec["dnsNames"])
    assert spec["secretName"] in {
        v.get("secret", {}).get("secretName") for v in pod_of(rendered["managed"])[0]["volumes"]
    }
    assert "https" == endpoint["scheme"]
    assert endpoint["tlsConfig"]["serverName"] in spec["dnsNames"]
    assert CASES["managed"][0]["podMonitor"]["tls"].items() <= endpoint["tlsConfig"].items()


def pod_names(deployment):
    """Names of pods as Kubernetes makes them: what stands before the five characters that it draws is cut at 58."""
    return [f"{deployment}-{template}-"[:58] + "x2x4z" for template in ("5d8f7c9b", "5d8f7c9b6f")]


def names_beside(name):
    """Names of other releases that begin or end as this one, as long as the chart lets them be."""
    others = [f"{name}-b", f"{name}-two", f"{name}-".ljust(52, "x"), name.rpartition("-")[0], f"a-{name}"]
    return [other for other in others if len(other) <= 52 and other != name]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("queue", "HorizontalPodAutoscaler"),
        ("keda", "ScaledObject"),
        ("observed", "PrometheusRule"),
        ("longest", "ScaledObject"),
        ("longest", "PrometheusRule"),
    ],
)
def test_queries_name_metrics_that_the_server_has(rendered, case, kind):
    """What scales and what alerts asks for series of this release, by names of the table of metrics."""
    objects = by_kind(rendered[case])
    text = json.dumps(objects[kind]["spec"])
    asked = set(re.findall(rf"\b{PREFIX}\w+", text))
    matchers = set(re.findall(r'\w+\{namespace=\\+"translation\\+",pod=~\\+"(.*?)\\+"', text))
    name = objects["Deployment"]["metadata"]["name"]
    others = [pod for other in names_beside(name) for pod in pod_names(other)]

    assert asked
    assert asked <= {PREFIX + spec.name for spec in TABLE}
    assert matchers or case == "queue"
    assert all(re.fullmatch(pods, pod) for pods in matchers for pod in pod_names(name))
    assert not [pod for pods in matchers for pod in others if re.fullmatch(pods, pod)]
    assert "replicas" not in by_kind(rendered["queue"])["Deployment"]["spec"]


def test_a_changed_setting_rolls_the_pods(rendered):
    """The pods carry a hash of their settings; what scrapes them finds the port, unless a PodMonitor says it."""
    notes = {
        case: by_kind(rendered[case])["Deployment"]["spec"]["template"]["metadata"]["annotations"] for case in CASES
    }
    scraped = {"scrape": "true", "port": "7071", "path": "/metrics", "scheme": "http"}

    assert notes["plain"]["checksum/settings"] == notes["weft-blue"]["checksum/settings"]
    assert notes["plain"]["checksum/settings"] != notes["api"]["checksum/settings"]
    assert {f"prometheus.io/{key}": value for key, value in scraped.items()}.items() <= notes["plain"].items()
    assert "https" == notes["tls"]["prometheus.io/scheme"]
    assert not [key for key in notes["observed"] if key.startswith("prometheus.io/")]


def test_a_digest_wins_over_a_tag(rendered):
    """Images have the chart's version, the tag of the values, or their digest."""
    images = {
        case: [each["image"] for each in [*pod["initContainers"], server]]
        for case in ("plain", "gpu", "digests")
        for pod, server in [pod_of(rendered[case])]
    }

    assert ["weft-models:1", "weft:0.1.0"] == images["plain"]
    assert ["weft-models:1", "weft:0.1.0-cuda"] == images["gpu"]
    assert ["weft-models@sha256:2", "weft@sha256:1"] == images["digests"]


def test_a_node_may_be_chosen(rendered):
    """What says where pods run reaches the pod, and what it says of resources is laid over the defaults."""
    pod, server = pod_of(rendered["gpu"])
    deployment = by_kind(rendered["gpu"])["Deployment"]["spec"]
    metadata = deployment["template"]["metadata"]
    (spread,) = pod["topologySpreadConstraints"]
    values = CASES["gpu"][0]

    for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName", "imagePullSecrets"):
        assert values[key] == pod[key]
    assert {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": 1} == server["resources"]["limits"]
    assert values["env"] == server["env"]
    assert (1, {"rollingUpdate": values["rollout"]}) == (deployment["replicas"], deployment["strategy"])
    assert values["podLabels"].items() <= metadata["labels"].items()
    assert values["podAnnotations"].items() <= metadata["annotations"].items()
    assert values["topologySpread"]["whenUnsatisfiable"] == spread["whenUnsatisfiable"]
    assert "serving" == pod["serviceAccountName"]
    assert server["startupProbe"]["failureThreshold"] * server["startupProbe"]["periodSeconds"] >= 901
