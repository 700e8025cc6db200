"""What custom resources require, by hand from their definitions: the version, and the fields that must be there.

This is less than their schemas: no cluster's API server has seen these objects.
"""

# Kind: apiVersion, fields of the spec that are required, all other fields that we use.
DEFINITIONS = {
    "Certificate": ("cert-manager.io/v1", {"secretName", "issuerRef"}, {"dnsNames", "privateKey"}),
    "GRPCRoute": ("gateway.networking.k8s.io/v1", {"parentRefs", "rules"}, {"hostnames"}),
    "HTTPRoute": ("gateway.networking.k8s.io/v1", {"parentRefs", "rules"}, {"hostnames"}),
    "InferenceService": ("serving.kserve.io/v1beta1", {"predictor"}, set()),
    "InferencePool": ("inference.networking.k8s.io/v1", {"selector", "targetPorts", "endpointPickerRef"}, set()),
    "PodMonitor": ("monitoring.coreos.com/v1", {"selector", "podMetricsEndpoints"}, set()),
    "PrometheusRule": ("monitoring.coreos.com/v1", {"groups"}, set()),
    "ScaledObject": (
        "keda.sh/v1alpha1",
        {"scaleTargetRef", "triggers"},
        {"minReplicaCount", "maxReplicaCount", "advanced"},
    ),
    "ServingRuntime": (
        "serving.kserve.io/v1alpha1",
        {"containers"},
        {"supportedModelFormats", "protocolVersions", "annotations", "volumes"},
    ),
}


def faults(document):
    """What is wrong with a custom resource, in words."""
    version, required, others = DEFINITIONS[document["kind"]]
    given = set(document["spec"])
    found = [f"apiVersion is {document['apiVersion']}"] * (document["apiVersion"] != version)
    return [
        *found,
        *(f"no {key}" for key in required - given),
        *(f"unknown {key}" for key in given - required - others),
    ]
