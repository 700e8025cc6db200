"""`make bench-gpu` where there is no GPU: it says so, and its script can be rehearsed."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments):
    """Run the script; its exit status and output."""
    command = [sys.executable, str(ROOT / "tests/bench/gpu/bench.py"), *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    return ended.returncode, ended.stdout


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="there is CUDA")
def test_without_cuda_it_says_so():
    """One sentence and exit status 2, which no measurement has."""
    status, output = bench()

    assert 2 == status
    assert output.startswith("bench-gpu needs a CUDA device, and there is none: ")


def test_a_day_makes_weights_first():
    """Each piece is done once, behind the weights of its shape at its precision, and nothing of a shape is left out."""
    folders = [str(ROOT / "tests" / folder) for folder in ("bench/gpu", "bench", "bench/peers", "", "export")]
    script = "import json; from pieces import DAY, PIECES; from shapes import SHAPES; "
    script += "print(json.dumps([DAY, [[s, n] for s in SHAPES for n, p in PIECES.items() if p.of(SHAPES[s])]]))"
    said = subprocess.check_output(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {folders!r}; {script}"], text=True, cwd=ROOT
    )
    day, known = json.loads(said)
    seen = set()
    for precision, shape, name in day:
        assert name == "weights" or (precision, shape, "weights") in seen
        assert (precision, shape, name) not in seen
        seen.add((precision, shape, name))
    asked = {(precision, shape, name) for precision in ("fp16", "bf16", "int4-fp16") for shape, name in known}
    assert {job for job in asked if not job[1].startswith("tiny")} == seen


@pytest.mark.long
def test_a_run_ends_in_time(tmp_path):
    """A run that has time for one piece does one, and says what is left."""
    status, output = bench("--rehearse", "--out", str(tmp_path), "--minutes", "0")

    assert 0 == status
    assert ["tiny.weights"] == list(results(tmp_path))
    assert "34 pieces are left (tiny.proof, " in output


@pytest.mark.long
def test_it_can_be_rehearsed(tmp_path):
    """Runs go on behind each other until all pieces have results, and the page with them is printed.

    On the CPU with a tiny model parity holds, and every answer is the same alone.
    """
    for minutes in ("0", "99"):
        status, output = bench("--rehearse", "--out", str(tmp_path), "--minutes", minutes)
        assert 0 == status
    parts = results(tmp_path)
    (proof,) = parts["tiny.proof"]
    assert proof["of"] == proof["same_answers"]
    assert 0 < proof["largest_difference"] <= proof["bound"]
    assert {"in_flight", "tokens_per_s", "step_us", "share_of_bandwidth"} <= set(parts["tiny.steps"][0])
    assert [0, 3] == [each["beside_rows"] for each in parts["tiny.beside"]]
    (proof,) = parts["tiny-shared.proof"]
    assert 0 < proof["largest_difference"] <= proof["bound"]
    assert {"in_flight", "tokens_per_s", "step_us"} == set(parts["tiny-translator.steps"][0]) - {
        "system",
        "copy_gb_per_s",
    }
    assert (tmp_path / "fp16" / "page.md").read_text() in output
    with tarfile.open(tmp_path / "results.tar.gz") as tar:
        assert {f"fp16/{name}.json" for name in parts} | {"fp16/page.md"} == set(tar.getnames())


def results(folder):
    """What the pieces found, by shape and name."""
    return {path.stem: json.loads(path.read_text())["results"] for path in folder.glob("fp16/*.json")}
