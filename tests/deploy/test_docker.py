"""The Dockerfiles, as far as they can be checked without a Docker engine."""

import re
import tomllib
from pathlib import Path

import pytest

from weft_server.config import ServerConfig, env_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy/docker"
SERVER, MODELS = DOCKER / "Dockerfile", DOCKER / "models.Dockerfile"
ALL = sorted(DOCKER.glob("*Dockerfile"))
_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def instructions(dockerfile):
    """The Dockerfile as (instruction, argument) pairs: comments dropped, continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def last_stage(dockerfile):
    """What is in the image: the instructions after the last FROM."""
    steps = instructions(dockerfile)
    begin = max(at for at, (word, _) in enumerate(steps) if word == "FROM")
    return steps[begin:]


def copied(dockerfile):
    """The paths that the build takes from its context."""
    for word, argument in instructions(dockerfile):
        sources = [part for part in argument.split() if not part.startswith("--")][:-1]
        if word == "COPY" and "--from=" not in argument:
            yield from sources


def test_the_server_is_built_in_one_stage_and_runs_in_another():
    """The last stage takes over the finished environment and installs nothing."""
    words = [word for word, _ in last_stage(SERVER)]

    assert 2 == [word for word, _ in instructions(SERVER)].count("FROM")
    assert ("COPY", "--from=build /opt/weft /opt/weft") in last_stage(SERVER)
    assert "RUN" not in words


def bases(text):
    """Of each FROM its argument's name, and the default of that. Stages are no bases."""
    stages, found = set(), []
    for line in text.splitlines():
        if line.startswith("FROM "):
            base, _, stage = line.removeprefix("FROM ").partition(" AS ")
            if base not in stages:
                found.append(base)
            stages.add(stage)
    for base in found:
        name = base.removeprefix("${").removesuffix("}")
        (default,) = re.search(rf"^ARG {re.escape(name)}=(\S+)$", text, re.MULTILINE).groups()
        yield base, name, default


@pytest.mark.parametrize("dockerfile", ALL, ids=lambda path: path.name)
def test_each_base_has_a_digest(dockerfile):
    """It is an argument, so that who builds can give one. The same Dockerfile makes CUDA's image."""
    seen = list(bases(dockerfile.read_text()))
    page = (ROOT / "deploy/README.md").read_text()

    assert {SERVER, MODELS} == set(ALL)
    assert seen
    for base, name, default in seen:
        assert f"${{{name}}}" == base
        assert _PINNED.fullmatch(default)
        assert f"--build-arg {name}=$(pin {default.partition('@')[0]})" in page


@pytest.mark.parametrize("dockerfile", [SERVER, MODELS], ids=lambda path: path.name)
def test_no_image_runs_as_root(dockerfile):
    """The last USER is a number above every system account."""
    users = [argument for word, argument in last_stage(dockerfile) if word == "USER"]

    assert int(users[-1].split(":")[0]) >= 10_000


def test_every_copied_path_exists_and_is_let_through():
    """What the server's build copies is in the repository, and its .dockerignore lets exactly that through."""
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in ignore if line.startswith("!")}

    assert "*" in ignore
    assert let_through == set(copied(SERVER))
    assert all((ROOT / path).exists() for path in copied(SERVER))


def test_the_build_sees_every_package_of_the_wheel():
    """Hatchling drops a package that it cannot find without a word, so the build copies each one's folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    sources = [Path(path) for path in copied(SERVER)]

    assert all(any(Path(package).is_relative_to(source) for source in sources) for package in packages)


def test_the_models_image_holds_the_exported_bundles_alone():
    """It copies build/models, and its .dockerignore hides everything else."""
    ignore = (DOCKER / "models.Dockerfile.dockerignore").read_text().splitlines()

    assert ["build/models"] == list(copied(MODELS))
    assert ["*", "!build/models"] == [line for line in ignore if not line.startswith("#")]


@pytest.mark.parametrize("dockerfile", [SERVER, MODELS], ids=lambda path: path.name)
def test_modes_are_digits(dockerfile):
    """Every builder reads them: Debian's buildah refuses `--chmod=a+rX`."""
    modes = re.findall(r"--chmod=(\S+)", dockerfile.read_text())

    assert (["0755"] if dockerfile == MODELS else []) == modes


def test_torch_cannot_enter_the_image():
    """The pin of torch becomes unsatisfiable in the build, by the command that the Dockerfile runs."""
    script = next(argument for word, argument in instructions(SERVER) if word == "RUN")
    pattern, replacement = re.search(r"sed 's/(.*?)/(.*?)/' constraints\.txt", script).groups()
    rewritten = re.sub(pattern, replacement, (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)

    assert ["torch<0"] == re.findall(r"^torch\b.*", rewritten, flags=re.MULTILINE)


def test_the_image_has_one_runtime():
    """The build installs one extra with the module onnxruntime, the CPU's unless told otherwise, and constraints."""
    steps = instructions(SERVER)

    assert ("ARG", "EXTRA=server") in steps
    assert ["weft-serving[${EXTRA},constraints,otel]"] == re.findall(
        r"[\w-]*weft[\w-]*\[[^\]]*\]", " ".join(argument for _, argument in steps)
    )


def test_the_cuda_image_has_one_version_of_everything():
    """Its runtime is the CPU's at the same version, and CUDA's libraries have a pin each. Nothing is pinned twice."""
    pins = [line.split("==") for line in (DOCKER / "cuda.txt").read_text().splitlines() if not line.startswith("#")]
    of_all = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))

    assert of_all["onnxruntime"] == dict(pins)["onnxruntime-gpu"]
    assert all(name == "onnxruntime-gpu" or name.startswith("nvidia-") for name, _ in pins)
    assert all(re.fullmatch(r"[\d.]+", version) for _, version in pins)
    assert sorted(pins) == pins
    assert (
        "(sed 's/^torch==.*/torch<0/' constraints.txt && cat cuda.txt) > server-constraints.txt" in SERVER.read_text()
    )
    # The stand-in for a device is built with headers of the same CUDA.
    fetched = re.findall(r"nvidia-cuda-runtime==(\S+)", (ROOT / "Makefile").read_text())
    assert [dict(pins)["nvidia-cuda-runtime"]] == fetched


def test_the_image_is_configured_by_documented_variables():
    """Every WEFT_ variable of the image is a setting of the server, and the exposed ports are those it opens."""
    stage = last_stage(SERVER)
    variables = dict(re.findall(r"(WEFT_\w+)=(\S+)", " ".join(argument for word, argument in stage if word == "ENV")))
    (exposed,) = [argument.split() for word, argument in stage if word == "EXPOSE"]

    assert set(variables) <= {env_name(field) for field in ServerConfig.model_fields}
    assert exposed == [variables["WEFT_PORT"], variables["WEFT_HTTP_PORT"]]


def test_the_server_is_process_one():
    """The exec form: SIGTERM reaches the server itself, which drains on it."""
    stage = last_stage(SERVER)

    assert ("ENTRYPOINT", '["weft", "serve"]') in stage
    assert ("STOPSIGNAL", "SIGTERM") in stage
