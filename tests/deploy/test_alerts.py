"""The alerts: each fires on what it is for by promtool, one on a real server, and each has its paragraph."""

import re
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
import yaml

from process import ServerProcess
from real_prometheus import Prometheus, needs_prometheus
from weft_proto.v1 import classification_pb2, classification_pb2_grpc
from weft_server.telemetry.metrics_table import AT_ZERO

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/chart/weft/files/alerts.yaml"
CASES = Path(__file__).with_name("alerts_test.yaml")
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
ASKED = classification_pb2.ClassifyRequest(text="open the named file")
NAMES = [rule["alert"] for rule in RULES]


def test_each_alert_has_its_paragraph():
    """docs/alerts.md has a heading for each, in order, and the alert says where."""
    page = (ROOT / "docs/alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == NAMES
    assert [rule["annotations"]["runbook"] for rule in RULES] == [f"docs/alerts.md#{name.lower()}" for name in NAMES]


def test_each_alert_has_cases():
    """In which it fires, and in which it does not."""
    asked = {name: set() for name in NAMES}
    for test in yaml.safe_load(CASES.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            asked[case["alertname"]].add("exp_alerts" in case)
    assert {name: {True, False} for name in NAMES} == asked


def test_what_an_alert_looks_for_in_what_grew_is_there_at_zero():
    """Otherwise the first that happens is the first value, and `increase` sees nothing grow."""
    failures = " ".join(rule["expr"] for rule in RULES if rule["alert"] in {"WeftCallsFail", "WeftLanesFail"})
    read = dict.fromkeys(re.findall(r"increase\(weft_(\w+)\{", failures))
    assert list(AT_ZERO) == list(read)
    (codes,) = {*re.findall(r'code=~"([^"]*)"', failures)}
    assert list(AT_ZERO["requests_total"]) == codes.split("|")


@needs_prometheus
def test_each_alert_fires_when_it_should(tmp_path):
    """By promtool, on series that a file writes down. The texts are checked, and not compared."""
    subprocess.run(["promtool", "check", "rules", FILE], check=True, capture_output=True)
    rules = yaml.safe_load(FILE.read_text())
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "cases.yaml").write_text(CASES.read_text())
    done = subprocess.run(
        ["promtool", "test", "rules", "cases.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.e2e
def test_a_server_without_room_makes_the_alert_fire(demo_repository, tmp_path):
    """Eight calls at once, a queue of two places, and minutes become seconds. Before that, no alert fires."""
    repository = tmp_path / "models"
    repository.mkdir()
    (repository / "topics").symlink_to(demo_repository / "topics")
    rules = re.sub(r"\[(\d+)m\]", r"[\1s]", re.sub(r"for: (\d+)m", r"for: \1s", FILE.read_text()))
    with ServerProcess(repository, max_queued_requests=2) as server:
        server.wait_for("ready")
        done = threading.Event()

        def flood():
            with grpc.insecure_channel(server.target, options=[("grpc.enable_retries", 0)]) as channel:
                stub = classification_pb2_grpc.ClassificationServiceStub(channel)
                while not done.wait(0.05):
                    for call in [stub.Classify.future(ASKED) for _ in range(8)]:
                        with suppress(grpc.RpcError):
                            call.result()

        with Prometheus(tmp_path, server.http, rules) as prometheus:
            assert set() == prometheus.firing()
            thread = threading.Thread(target=flood)
            thread.start()
            try:
                prometheus.wait_until(lambda: "WeftRefusesRequests" in prometheus.firing(), "the alert")
            finally:
                done.set()
                thread.join()
