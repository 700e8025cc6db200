"""Values of the chart to try, and the kinds of objects that each brings beside those of no values at all."""

ALWAYS = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
_GATEWAY = {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["weft.test"]}
_CERTIFICATE = {"enabled": True, "issuerRef": {"name": "house", "kind": "ClusterIssuer"}, "dnsNames": ["weft.test"]}
_API = {"api_port": 8000}

CASES = {
    "plain": ({}, set()),
    "weft-blue": ({}, set()),
    "digests": (
        {"fullnameOverride": "pinned", "image": {"digest": "sha256:1"}, "models": {"image": {"digest": "sha256:2"}}},
        set(),
    ),
    "api": ({"settings": _API | {"cors_origins": "*"}}, set()),
    "tls": ({"tls": {"secretName": "cert"}, "tokens": {"secretName": "callers"}, "settings": _API}, set()),
    "managed": (
        {
            "tls": {"mutual": True, "certificate": _CERTIFICATE},
            "podMonitor": {
                "enabled": True,
                "tls": {
                    "cert": {"secret": {"name": "scraper", "key": "tls.crt"}},
                    "keySecret": {"name": "scraper", "key": "tls.key"},
                },
            },
        },
        {"Certificate", "PodMonitor"},
    ),
    "queue": ({"autoscaling": {"enabled": True, "queuedRequests": 4}}, {"HorizontalPodAutoscaler"}),
    "keda": ({"keda": {"enabled": True, "serverAddress": "http://prometheus:9090"}}, {"ScaledObject"}),
    "longest": (
        {
            "fullnameOverride": "longest-" + 44 * "x",
            "prometheusRule": {"enabled": True},
            "keda": {"enabled": True, "serverAddress": "http://prometheus:9090"},
        },
        {"PrometheusRule", "ScaledObject"},
    ),
    "image-volume": ({"models": {"source": "imageVolume"}}, set()),
    "claim": ({"models": {"source": "claim", "claimName": "models"}}, set()),
    "observed": (
        {
            "tokens": {"secretName": "callers"},
            "podMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "authorization": {"credentials": {"name": "scraper", "key": "token"}},
            },
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True},
        },
        {"PodMonitor", "PrometheusRule"},
    ),
    "reached": (
        {
            "settings": _API,
            "networkPolicy": {"enabled": True, "callers": [], "egress": [{"ports": [{"port": 4317}]}]},
            "grpcRoute": _GATEWAY,
            "httpRoute": _GATEWAY,
        },
        {"NetworkPolicy", "GRPCRoute", "HTTPRoute"},
    ),
    "gpu": (
        {
            "settings": {"device": "cuda", "drain_timeout_s": 600.5, "max_held_bytes": 1_099_511_627_776},
            "image": {"tag": "0.1.0-cuda"},
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "serving",
            "runtimeClassName": "nvidia",
            "topologySpread": {"topologyKeys": ["topology.kubernetes.io/zone"], "whenUnsatisfiable": "DoNotSchedule"},
            "rollout": {"maxUnavailable": 1, "maxSurge": 0},
            "startupSeconds": 901,
            "replicas": 1,
            "imagePullSecrets": [{"name": "registry"}],
            "podLabels": {"team": "search"},
            "podAnnotations": {"mesh": "off"},
            "env": [{"name": "OTEL_SERVICE_NAME", "value": "weft"}],
            "serviceAccount": {"create": False, "name": "serving"},
            "disruptionBudget": {"maxUnavailable": "50%"},
        },
        set(),
    ),
}
