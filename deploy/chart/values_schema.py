"""Writes the schema of the chart's values: what values.yaml has, and each setting of the server.

`python deploy/chart/values_schema.py` after a change of either.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from weft_server.config import ServerConfig

CHART = Path(__file__).parent / "weft"
SCHEMA = CHART / "values.schema.json"
# Kubernetes says what may stand in these.
OPEN = {"resources", "dashboards.labels"}
PULL = {"enum": ["Always", "IfNotPresent", "Never"]}
NUMBER_OR_PERCENT = {"type": ["integer", "string"]}
POSITIVE = {"type": "integer", "minimum": 1}
# What a default does not say.
SPECIAL: dict[str, dict[str, Any]] = {
    "image.pullPolicy": PULL,
    "models.image.pullPolicy": PULL,
    "models.source": {"enum": ["initImage", "imageVolume", "claim"]},
    "topologySpread.whenUnsatisfiable": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
    "rollout.maxUnavailable": NUMBER_OR_PERCENT,
    "rollout.maxSurge": NUMBER_OR_PERCENT,
    "disruptionBudget.maxUnavailable": NUMBER_OR_PERCENT,
    "autoscaling.minReplicas": POSITIVE,
    "autoscaling.maxReplicas": POSITIVE,
    "keda.minReplicas": POSITIVE,
    "keda.maxReplicas": POSITIVE,
    "keda.queuedRequests": POSITIVE,
    "startupSeconds": POSITIVE,
}
TYPES = {bool: "boolean", str: "string", list: "array"}


def schema() -> dict[str, Any]:
    """Return the schema of all values. Unknown ones are refused."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    whole = of_value("", values)
    whole["properties"]["settings"] = of_settings(sorted(values["settings"]))
    # Helm hands it to every chart that is a part of another.
    whole["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole}


def of_value(path: str, default: Any) -> dict[str, Any]:
    """Return the schema of one value, by its default. An empty map or list may hold anything."""
    if path in SPECIAL:
        return SPECIAL[path]
    if isinstance(default, dict):
        if path in OPEN or not default:
            return {"type": "object"}
        each = {key: of_value(f"{path}.{key}".lstrip("."), value) for key, value in default.items()}
        return {"type": "object", "additionalProperties": False, "properties": each}
    if type(default) is int:
        return {"type": "integer", "minimum": 0}
    return {"type": TYPES[type(default)]}


def of_settings(required: list[str]) -> dict[str, Any]:
    """Return the schema of the server's settings. What the chart itself reads has to be there."""
    fields = ServerConfig.model_json_schema()["properties"]
    settings = {name: of_setting(name, field) for name, field in fields.items()}
    return {"type": "object", "additionalProperties": False, "required": required, "properties": settings}


def of_setting(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one setting. A pod's ports have to be known, so none is 0."""
    (kind,) = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
    known = {key: kind[key] for key in kind if key not in {"title", "format", "default", "description"}}
    if name.endswith("port"):
        known["minimum"] = 1
    return {**known, "description": field["description"]}


def main() -> None:
    """Write it beside values.yaml."""
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n")


if __name__ == "__main__":
    main()
