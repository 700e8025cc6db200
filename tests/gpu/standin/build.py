"""Builds the stand-in beside the provider that it stands in for: `python build.py SITE HEADERS OUT`.

SITE holds an unpacked onnxruntime-gpu, HEADERS CUDA's headers. OUT then holds a library for each of CUDA's that the
provider needs.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
RUNTIME = "libcudart.so.13"
# Libraries that have functions of ours. All other functions of theirs are made here.
OURS = {
    "libcublas.so.13": ["blas.cpp"],
    "libcublasLt.so.13": ["blaslt.c"],
    "libcudnn.so.9": ["dnn.cpp", "recurring.cpp", "convolving.cpp", "pooling.cpp"],
}
# What is looked for in libraries that are loaded by name.
LOADED = {
    "libcuda.so.1": {"cuGetProcAddress", "cuInit"},
    "libcurand.so.10": {"curandCreateGenerator"},
    "libcufft.so.12": {"cufftCreate"},
    "libnvrtc.so.13": {"nvrtcVersion"},
}
# Functions that do a model's work: each is counted as not emulated.
WORK = re.compile(
    r"Forward$|Inference|Training|AddTensor|ReduceTensor$|BackendExecute|LtMatmul$|LtMatrixTransform$|[Gg]emm|geam|getr|scal|copy"
)
HEAD = """#include <stdlib.h>
typedef void* P;
extern void standin_unemulated(P stream, const char* what);
"""


def main(site: Path, headers: Path, out: Path) -> None:
    """Build all libraries."""
    provider = site / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so"
    out.mkdir(parents=True, exist_ok=True)
    wanted = _wanted(provider)
    # A library's version is a part of its functions' names, where the provider was linked to it.
    linked = set(wanted)
    wanted["libcudnn.so.9"] = {name.decode() for name in re.findall(rb"\0(cudnn[A-Z]\w+)(?=\0)", provider.read_bytes())}
    for library, names in LOADED.items():
        wanted[library] = wanted.get(library, set()) | names
    apart = {name for names in OURS.values() for name in names}
    runtime = [path for path in sorted(SOURCES.glob("*.cpp")) if path.name not in apart]
    _compile(out / RUNTIME, runtime, headers, versioned=True)
    for library in sorted(set(wanted) - {RUNTIME}):
        own = [SOURCES / name for name in OURS.get(library, [])]
        made = out / f"{library.split('.')[0]}.c"
        missing = wanted[library] - {name for path in own for name in re.findall(r"\b(cu\w+)\(", path.read_text())}
        made.write_text(HEAD + "".join(map(_function, sorted(missing))))
        _compile(out / library, [*own, made], headers, versioned=library in linked, beside=out / RUNTIME)


def _wanted(provider: Path) -> dict[str, set[str]]:
    """Return what the provider needs of each of CUDA's libraries. A function without a version is the driver's."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", str(provider)], check=True, capture_output=True, text=True)
    wanted: dict[str, set[str]] = {}
    for name in (line.split()[-1] for line in listed.stdout.splitlines()):
        symbol, _, library = name.partition("@")
        if re.match(r"(__)?cu(da|blas|rand)", symbol) and library.startswith("libcu"):
            wanted.setdefault(library, set()).add(symbol)
        elif symbol.startswith("cuTensorMap"):
            wanted.setdefault("libcuda.so.1", set()).add(symbol)
    return wanted


def _function(name: str) -> str:
    if re.search(r"GetErrorString|GetStatus(Name|String)", name):
        return f'const char* {name}(int error) {{ return "a status of the stand-in"; }}\n'
    if "Create" in name:
        return f"int {name}(P* made) {{ *made = calloc(1, 256); return 0; }}\n"
    if WORK.search(name):
        return f'int {name}(P* handle) {{ standin_unemulated(*handle, "{name}"); return 0; }}\n'
    return f"int {name}() {{ return 0; }}\n"


def _compile(target: Path, sources: list[Path], headers: Path, *, versioned: bool, beside: Path | None = None) -> None:
    objects = []
    for source in sources:
        made = target.parent / f"{target.name}.{source.name}.o"
        compiler = ["g++", "-std=c++17", "-Wall"] if source.suffix == ".cpp" else ["gcc", "-w"]
        subprocess.run([*compiler, "-O2", "-fPIC", "-c", f"-I{headers}", str(source), "-o", str(made)], check=True)
        objects.append(str(made))
    command = ["g++", "-shared", *objects, "-o", str(target), f"-Wl,-soname,{target.name}"]
    if versioned:
        script = target.parent / f"{target.name}.map"
        script.write_text(f"{target.name} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    if beside:
        command += [f"-L{beside.parent}", f"-l:{beside.name}"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
