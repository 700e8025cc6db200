"""Which device a server runs on, and what it says when it cannot."""

from dataclasses import replace
from importlib.machinery import ModuleSpec

import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.config import ConfigError, read_config
from weft_server.errors import BundleError
from weft_server.runtime import cudart
from weft_server.runtime.device import HOST, Device, devices_of, verify_build, verify_caches, verify_precision
from weft_server.runtime.session import verify_device

FAR = Device(in_place=False)
CUDA = Device("cuda", in_place=False)


def has_cuda():
    """Whether the ONNX Runtime installed here has CUDA in it."""
    import onnxruntime

    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def test_the_host_unless_told_otherwise():
    """The default device is the CPU, in place: a GPU is asked for, since it promises no bits."""
    assert [HOST] == devices_of(read_config(repository="models"))


def test_the_settings_name_the_devices():
    """Device, indices in their order, and graphs come from the settings. The CPU is one, whatever CUDA has."""
    config = read_config(repository="models", device="cuda", cuda_device="2,0", cuda_graphs=True)
    assert [Device("cuda", each, in_place=False, captures=True) for each in (2, 0)] == devices_of(config)
    assert ["cuda:2", "cuda:0"] == [device.name for device in devices_of(config)]
    assert ["cpu"] == [device.name for device in devices_of(read_config(repository="models", cuda_device="0,1"))]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cuda_graphs": True}, r"--cuda-graphs \(WEFT_CUDA_GRAPHS\): are for --device cuda"),
        ({"device": "cuda", "lanes": 2}, r"--lanes \(WEFT_LANES\): .* one lane, and --cuda-device names 1, not 2"),
        ({"device": "cuda", "cuda_device": "3,5", "lanes": 3}, r"--lanes .* --cuda-device names 2, not 3"),
    ],
)
def test_settings_that_contradict_the_device_are_refused(settings, text):
    """A setting that the device cannot follow stops the start by its name."""
    with pytest.raises(ConfigError, match=text):
        devices_of(read_config(repository="models", **settings))


@pytest.mark.skipif(has_cuda(), reason="this ONNX Runtime has CUDA")
def test_cuda_needs_the_runtime_that_has_it():
    """Without CUDA in ONNX Runtime the start is refused with what to install, and never together with the other."""
    for verify in (verify_device, verify_build):
        with pytest.raises(ConfigError, match=r"the extra gpu instead of the extra server, never both.*serving.gpu"):
            verify(CUDA)


@pytest.mark.parametrize("library", ["libonnxruntime_providers_cuda.so", "onnxruntime_providers_cuda.dll"])
def test_cuda_is_looked_for_in_the_files_of_the_runtime(tmp_path, monkeypatch, library):
    """Whether ONNX Runtime has CUDA is known without loading it: its library lies there, or does not."""
    (tmp_path / "capi").mkdir()
    for name in ("libonnxruntime_providers_shared.so", library):
        spec = ModuleSpec("onnxruntime", None)
        spec.submodule_search_locations = [str(tmp_path)]
        monkeypatch.setattr("weft_server.runtime.device.find_spec", {"onnxruntime": spec}.get)
        with pytest.raises(ConfigError, match="the extra gpu instead of the extra server"):
            verify_build(CUDA)
        (tmp_path / "capi" / name).touch()
    verify_build(CUDA)
    monkeypatch.setattr("weft_server.runtime.device.find_spec", {}.get)
    with pytest.raises(ConfigError, match="the extra gpu instead of the extra server"):
        verify_build(CUDA)


def test_the_host_is_always_there():
    """A CPU needs no check."""
    verify_device(HOST)
    verify_build(HOST)


@pytest.mark.parametrize(
    ("precision", "device", "text"),
    [
        (bundle_pb2.PRECISION_BF16, HOST, "bf16 is for --device cuda"),
        (bundle_pb2.PRECISION_INT8, CUDA, "int8 is for --device cpu"),
        (bundle_pb2.PRECISION_INT4, CUDA, "int4 is for --device cpu; on CUDA serve a bundle of .* int4-fp16"),
    ],
)
def test_a_precision_without_kernels_is_refused(precision, device, text):
    """A bundle that no kernel of the device can run is refused with the precisions that it can."""
    with pytest.raises(BundleError, match=text):
        verify_precision(precision, device)


def test_weights_of_4_bits_beside_fp16_run_on_both():
    """A CPU has kernels for them too, if slow ones."""
    for device in (HOST, CUDA):
        verify_precision(bundle_pb2.PRECISION_INT4_FP16, device)


def test_a_paged_cache_is_for_a_device():
    """On the CPU a bundle is refused with what to do instead. One that keeps slots is not."""
    paged, slotted = (
        bundle_pb2.BundleManifest(states=[{"kind": kind}])
        for kind in (bundle_pb2.STATE_KIND_PAGED_CACHE, bundle_pb2.STATE_KIND_KV_CACHE)
    )
    text = "its cache lies in blocks, which is for --device cuda; on the CPU export without --paged"
    with pytest.raises(BundleError, match=text):
        verify_caches(paged, HOST)
    verify_caches(slotted, HOST)
    verify_caches(paged, CUDA)


def test_batches_are_exact_on_the_host_and_few_elsewhere():
    """On the host a decode run has as many rows as run; elsewhere the next of few sizes, the slots being the last."""
    assert [0, 1, 2, 3, 4, 5] == HOST.batches(5)
    assert [0, 2, 2, 3] == replace(HOST, least_rows=2).batches(3)
    assert [0, 1] == replace(HOST, least_rows=2).batches(1)
    assert [0, 1, 2, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12] == FAR.batches(12)
    assert [0, 1, 2, 3] == FAR.batches(3)
    assert [0, 1, 2, 4, 4, 8, 8, 8, 8] == FAR.batches(8)


class Called:
    """A library of CUDA in which all calls succeed, and that remembers them."""

    def __init__(self):
        self.names = []

    def __getattr__(self, name):
        def call(*_):
            self.names.append(name)
            return 0

        return call


@pytest.mark.parametrize(("num_bytes", "lets_go"), [(cudart.SMALL_BYTES, False), (cudart.SMALL_BYTES + 1, True)])
def test_a_small_copy_keeps_the_interpreter(monkeypatch, num_bytes, lets_go):
    """It is over before a busy thread would give the interpreter back. Nobody waits for a large one."""
    library = cudart._Library(Called(), Called())
    monkeypatch.setattr(cudart, "_FOUND", [library])
    cudart.send(0, 0, num_bytes, CUDA)
    cudart.fetch(0, 0, num_bytes, CUDA)
    copies = ["cudaMemcpy", "cudaStreamSynchronize", "cudaMemcpy"]
    assert (copies if lets_go else []) == library.waits.names
    assert ([] if lets_go else copies) == [name for name in library.stays.names if name != "cudaSetDevice"]


def test_a_large_copy_is_cut(monkeypatch):
    """Copies of a process follow each other: a small one waits for a piece, and not for all weights of a model."""
    library = cudart._Library(Called(), Called())
    monkeypatch.setattr(cudart, "_FOUND", [library])
    cudart.send(0, 0, 2 * cudart._PIECE_BYTES + 1, CUDA)
    assert 3 == (library.waits.names + library.stays.names).count("cudaMemcpy")
