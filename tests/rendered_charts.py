"""The chart as Helm's own library renders it: all cases in one process, which keeps Go's runtime out of pytest's."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/chart/weft"
# `make helm` fetches it.
FETCHED = ROOT / "build/helm/helm_python"
INFO = 1


def render(cases):
    """Name to its objects, or to the error's text, for each case: values by name. The name is the release's, too."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, input=json.dumps(cases), check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    """Render the cases of standard input. The library is imported here alone."""
    sys.path.insert(0, str(FETCHED.parent))
    import helm_python
    import yaml

    with helm_python.Chart.load(CHART) as chart:
        done = {}
        for name, values in json.load(sys.stdin).items():
            try:
                chart.validate_schema(values)
                files = chart.render(values, name=name, namespace="translation")
            except helm_python.HelmError as error:
                done[name] = str(error)
                continue
            report = helm_python.lint(CHART, values, strict=True)
            worse = [each["error"] for each in report["messages"] if each["severity"] > INFO]
            texts = [text for path, text in files.items() if path.endswith(".yaml")]
            documents = [each for text in texts for each in yaml.safe_load_all(text) if each]
            done[name] = worse or documents
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
