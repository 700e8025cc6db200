"""Which packages are there, against what a server needs, and what its ONNX Runtime can do."""

import os
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from weft_server.checks.finding import ERROR, OK, WARNING, Finding

_OURS = "weft-serving"
# A requirement of ours: a name, extras of that, the least version, and the extra of ours that asks for it.
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?(?:[>=]=([\d.]+))?(?:; extra == '([\w-]+)')?")
_CPU_RUNTIME, _GPU_RUNTIME = "onnxruntime", "onnxruntime-gpu"


def look_at_packages() -> Iterator[Finding]:
    """Say which are missing or too old, and what the runtime can run on."""
    needed = _needed("server")
    if needed is None:
        yield Finding(WARNING, "packages", f"{_OURS} is not installed, so nobody knows what it needs", _install(""))
        return
    has_gpu = _version(_GPU_RUNTIME) is not None
    if has_gpu and _version(_CPU_RUNTIME) is not None:
        says = f"{_CPU_RUNTIME} and {_GPU_RUNTIME} are both installed, and lie over each other"
        yield Finding(ERROR, "packages", says, f"pip uninstall both, then {_install('gpu')}")
    extra = "gpu" if has_gpu else "server"
    yield from _look_at(_needed(extra) or needed, extra)
    yield _constraints()
    yield from _runtime()


def _needed(extra: str) -> dict[str, str] | None:
    """The least version of each package that a server with this extra needs, or None where nobody knows."""
    try:
        lines = requires(_OURS) or []
    except PackageNotFoundError:
        return None
    found = (_REQUIREMENT.fullmatch(line) for line in lines)
    return {each[1]: each[2] or "0" for each in found if each is not None and each[3] in (None, extra)}


def _look_at(needed: dict[str, str], extra: str) -> Iterator[Finding]:
    have = {name: _version(name) for name in needed}
    missing = [name for name, there in have.items() if there is None]
    if missing:
        yield Finding(ERROR, "packages", f"not installed: {', '.join(missing)}", _install(extra))
    for name, there in have.items():
        if there is not None and _numbers(there) < _numbers(needed[name]):
            says = f"{name} {there} is older than {needed[name]}"
            yield Finding(ERROR, "packages", says, f"pip install --upgrade {name}")
    yield Finding(OK, "packages", ", ".join(f"{name} {there}" for name, there in sorted(have.items()) if there))


def _constraints() -> Finding:
    there = _version("llguidance")
    if there is not None:
        return Finding(OK, "constraints", f"llguidance {there}")
    return Finding(OK, "constraints", "none is taken without its extra", _install("constraints"))


def _runtime() -> Iterator[Finding]:
    asked = os.environ.get("ORT_DISABLE_TELEMETRY")
    try:
        from weft_server.runtime.session import CUDA, providers  # noqa: PLC0415 - may not be installed
    except ModuleNotFoundError:  # which has been said
        return
    except (ImportError, OSError) as error:
        yield Finding(ERROR, "runtime", f"ONNX Runtime cannot be loaded: {error}", _install("server"))
        return
    names = providers()
    yield Finding(
        OK, "runtime", f"ONNX Runtime for {', '.join(name.removesuffix('ExecutionProvider') for name in names)}"
    )
    if CUDA in names:
        yield _cuda()
    # The server switches it off, unless somebody has said otherwise.
    if asked in (None, "1"):
        yield Finding(OK, "telemetry", "ONNX Runtime reports nothing to its maker")
    else:
        says = f"ORT_DISABLE_TELEMETRY is {asked!r}: ONNX Runtime may report to its maker"
        yield Finding(WARNING, "telemetry", says, "unset it, or set it to 1")


def _cuda() -> Finding:
    from weft_server.config import ConfigError  # noqa: PLC0415 - what it needs is there by now
    from weft_server.runtime.cudart import num_devices  # noqa: PLC0415
    from weft_server.runtime.device import Device  # noqa: PLC0415
    from weft_server.runtime.session import verify_device  # noqa: PLC0415

    try:
        verify_device(Device("cuda", in_place=False))
    except ConfigError as error:
        return Finding(WARNING, "cuda", str(error), "models can run on the CPU")
    return Finding(OK, "cuda", f"device 0 can be opened; devices: {num_devices()}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text.partition("+")[0])]


def _install(extra: str) -> str:
    bracket = f"[{extra}]" if extra else ""
    return f"pip install '{_OURS}{bracket}', or in a clone: pip install '.{bracket}'"
