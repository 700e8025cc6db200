"""The compose file fits the server that it starts, and Prometheus takes what it is given."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from weft_server.config import ServerConfig
from weft_server.process.shutdown import MARGIN_S

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def config(monkeypatch):
    """The settings that the container has: of the image, and of the file."""
    image = re.findall(r"\b(WEFT_\w+)=(\S+)", (DEPLOY / "docker/Dockerfile").read_text())
    for name, value in [*image, *SERVICES["weft"]["environment"].items()]:
        monkeypatch.setenv(name, value)
    return ServerConfig()


def test_the_server_is_reached_and_scraped_where_it_listens(monkeypatch):
    """Calls come from this machine alone; Prometheus asks the port of metrics."""
    settings = config(monkeypatch)
    ports = [f"127.0.0.1:{port}:{port}" for port in (settings.port, settings.api_port)]
    scrape = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]

    assert ports == SERVICES["weft"]["ports"]
    (asked,) = scrape[0]["static_configs"]
    assert ([f"weft:{settings.http_port}"], {"pod"}) == (asked["targets"], set(asked["labels"]))
    assert f"../build/models:{settings.repository}:ro" in SERVICES["weft"]["volumes"]


def test_a_stop_leaves_the_time_to_drain(monkeypatch):
    """Docker waits longer than the server drains."""
    settings = config(monkeypatch)

    assert int(SERVICES["weft"]["stop_grace_period"].removesuffix("s")) > (
        settings.drain_delay_s + settings.drain_timeout_s + MARGIN_S
    )


def test_an_image_of_others_has_a_digest():
    """As a base of ours."""
    others = [each["image"] for each in SERVICES.values() if "build" not in each]

    assert others
    assert [] == [image for image in others if not re.search(r"@sha256:[0-9a-f]{64}$", image)]


def test_what_is_mounted_is_there():
    """Each file of the repository that a container reads, but for the models, which are made."""
    sources = [DEPLOY / each.split(":")[0] for service in SERVICES.values() for each in service["volumes"]]

    assert [] == [path for path in sources if not path.exists() and "build" not in path.parts]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_prometheus_takes_its_configuration(tmp_path):
    """With the alerts beside it, as they are mounted."""
    shutil.copy(DEPLOY / "prometheus/prometheus.yml", tmp_path)
    shutil.copy(DEPLOY / "chart/weft/files/alerts.yaml", tmp_path)
    command = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
