"""constraints.txt pins everything that an install brings."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
# Instead of onnxruntime, on machines with a GPU only: never in the venv that was frozen.
NOT_INSTALLED = {"onnxruntime-gpu"}
# What we call that older releases lack, though their range might say otherwise: the release before it came.
TOO_OLD = {"structlog": "25.0"}  # is_enabled_for of a filtering logger came with 25.1


def pins():
    """Distribution to the version that constraints.txt gives it."""
    return {canonicalize_name(name): Version(number) for name, number in (line.split("==") for line in LINES)}


def requested():
    """What pyproject.toml asks for, itself left out."""
    extras = PROJECT["optional-dependencies"].values()
    every = [Requirement(text) for text in [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]]
    return [entry for entry in every if entry.name != PROJECT["name"] and entry.name not in NOT_INSTALLED]


def test_each_line_pins_one_public_version():
    """name==version, once for each name, sorted; no local version, which only one index would have."""
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==([0-9]+!)?[A-Za-z0-9.]+", line) for line in LINES)
    assert len(LINES) == len(pins())
    assert sorted(LINES, key=str.lower) == LINES


def test_every_requirement_is_pinned_within_its_range():
    """What pyproject.toml asks for has a pin that satisfies it."""
    for entry in requested():
        assert entry.specifier.contains(pins()[canonicalize_name(entry.name)]), entry


def test_stubs_are_generated_with_the_oldest_supported_runtime():
    """Generated code refuses an older runtime, so grpcio-tools is the oldest grpcio that a client may have."""
    oldest = next(entry for entry in requested() if entry.name == "grpcio").specifier
    (floor,) = [Version(part.version) for part in oldest]
    tools = pins()["grpcio-tools"]

    assert floor.release[:2] == tools.release[:2]


def test_no_range_takes_a_release_that_lacks_what_we_call():
    """An install with the oldest release of each range answers requests."""
    ranges = {canonicalize_name(entry.name): entry.specifier for entry in requested()}
    assert [] == [name for name, release in TOO_OLD.items() if ranges[name].contains(release)]
