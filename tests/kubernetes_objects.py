"""What Kubernetes would make of rendered objects: which pods they run, and which pods they select."""

# Where objects of these kinds select pods.
_SELECTORS = {
    "Deployment": ("spec", "selector", "matchLabels"),
    "Service": ("spec", "selector"),
    "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
    "NetworkPolicy": ("spec", "podSelector", "matchLabels"),
    "PodMonitor": ("spec", "selector", "matchLabels"),
    "InferencePool": ("spec", "selector", "matchLabels"),
}


def pod_labels(objects):
    """The labels of the pods of the one Deployment."""
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    return deployment["spec"]["template"]["metadata"]["labels"]


def selectors(objects):
    """Kind and name to the labels by which it selects pods, the topology spread of a Deployment too."""
    found = {}
    for each in objects:
        name = each["metadata"]["name"]
        if each["kind"] in _SELECTORS:
            found[each["kind"], name] = _at(each, _SELECTORS[each["kind"]])
        if each["kind"] == "Deployment":
            for spread in each["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
                found[spread["topologyKey"], name] = spread["labelSelector"]["matchLabels"]
    return found


def selecting(objects, labels):
    """Which of the objects select pods of these labels."""
    return {key for key, wanted in selectors(objects).items() if wanted.items() <= labels.items()}


def is_of_dashboards(document):
    """Whether an object is the ConfigMap of Grafana's dashboards."""
    return document["metadata"]["name"].endswith("-dashboards")


def _at(document, path):
    for key in path:
        document = document[key]
    return document
