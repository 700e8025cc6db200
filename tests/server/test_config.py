"""Settings come from flags, then environment, then defaults, and the manual lists exactly them."""

import re
from pathlib import Path

import pydantic
import pytest

from weft_server.config import ConfigError, ServerConfig, env_name, flag_name, read_config

README = Path(__file__).parents[2] / "server" / "README.md"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    import os

    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)


def test_flag_wins_over_environment_wins_over_default(monkeypatch):
    """A flag wins over its variable, a variable over the default, and None is a flag not given."""
    monkeypatch.setenv("WEFT_SLOTS", "8")
    monkeypatch.setenv("WEFT_REFLECTION", "true")
    monkeypatch.setenv("WEFT_HOST", "")
    config = read_config(repository="models", slots=None, port=0)
    assert (8, True, 0, "127.0.0.1") == (config.slots, config.reflection, config.port, config.host)
    assert read_config(repository="models", slots=9).slots == 9


def test_config_is_frozen():
    """Nothing changes a setting after the start."""
    with pytest.raises(pydantic.ValidationError):
        read_config(repository="models").slots = 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({}, r"--repository \(WEFT_REPOSITORY\) is required"),
        ({"slots": 0}, r"--slots \(WEFT_SLOTS\): input should be greater than or equal to 1, not 0"),
        ({"port": 70000}, "--port"),
        ({"drain_timeout_s": float("inf")}, "--drain-timeout-s"),
        ({"drain_delay_s": -1}, "--drain-delay-s"),
        ({"log_format": "xml"}, "--log-format"),
        ({"verify_golden": False}, "--verify-golden"),
    ],
)
def test_bad_settings_are_refused_by_name(flags, text):
    """A missing, unknown or out-of-range setting is one line that names the flag and the variable."""
    with pytest.raises(ConfigError, match=text):
        read_config(**({"repository": "models"} | flags if flags else {}))


def test_kubernetes_service_link_is_explained(monkeypatch):
    """WEFT_PORT=tcp://..., which Kubernetes sets for a Service called weft, is told apart from a typing error."""
    monkeypatch.setenv("WEFT_PORT", "tcp://10.0.0.7:7070")
    with pytest.raises(ConfigError, match="enableServiceLinks: false"):
        read_config(repository="models")


def test_the_manual_lists_exactly_the_settings():
    """The table in server/README.md has each field's flag, variable, default and description, in order."""
    expected = []
    for name, field in ServerConfig.model_fields.items():
        default = "" if field.is_required() else f"`{str(field.default).lower()}`"
        expected.append(f"| `{flag_name(name)}` | `{env_name(name)}` | {default} | {field.description} |")
    section = README.read_text().split("## Settings", 1)[1]
    assert expected == re.findall(r"^\| `--.*$", section, re.MULTILINE)
