"""A real Prometheus that scrapes a server of ours every half second, with rules if they are given."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from process import PATIENCE_S

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no prometheus here: Debian's package `prometheus` has it",
)


class Prometheus:
    """A context manager that leaves nothing running. Its one target is the pod `a` of the namespace `n`."""

    def __init__(self, folder, target, rules=None, token=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        scraped = [{"targets": [target], "labels": {"pod": "a", "namespace": "n"}}]
        job = {"job_name": "weft", "static_configs": scraped}
        if token:
            job["authorization"] = {"credentials": token}
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "scrape_configs": [job],
        }
        if rules:
            (folder / "rules.yaml").write_text(rules)
            config["rule_files"] = ["rules.yaml"]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
        ]
        self._log = folder / "prometheus.log"

    def __enter__(self):
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.wait_until(lambda: self.values('up == 1 and on() count({__name__=~"weft_.+"})'), "the first scrape")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def values(self, query):
        """The samples that a query gives now; none while Prometheus starts. A wrong query fails."""
        answer = self._get(f"query?{urllib.parse.urlencode({'query': query})}")
        return answer["result"] if answer else []

    def firing(self):
        """The names of the alerts that fire."""
        answer = self._get("alerts")
        return {each["labels"]["alertname"] for each in answer["alerts"] if each["state"] == "firing"}

    def wait_until(self, condition, what):
        """Poll until `condition()` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"{what} did not come about; {self._log.read_text()}"
            time.sleep(0.2)

    def _get(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(error.read().decode()) from error
        except urllib.error.URLError:
            return None
