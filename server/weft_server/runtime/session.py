"""The only file that speaks to ONNX Runtime. It opens sessions with serving's settings, binds memory and runs."""

from __future__ import annotations

import itertools
import math
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

# Since 1.29, ONNX Runtime reports to its maker and leaves a device id in the home folder. It has to be told not to
# before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnx
import onnxruntime as ort

from weft_proto.bundle_rules import ADAPTER_PORTS
from weft_proto.session_entries import SESSION_ENTRIES
from weft_server.config import ConfigError, both_names
from weft_server.errors import BundleError
from weft_server.runtime import cudart
from weft_server.runtime.blocks import FLOAT, Block, SharedWeights, block_of, element_type_of
from weft_server.runtime.cudart import DeviceMemory
from weft_server.runtime.device import HOST, other_build
from weft_server.runtime.device_gate import GATE, device_gate_of
from weft_server.runtime.halt import Halt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from weft_server.runtime.device import Device

    Arrays = Mapping[str, np.ndarray]

CUDA = "CUDAExecutionProvider"
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": CUDA}
_FATAL = 4
# Optimisations that cost more than they give:
# - The CPU's kernel for a residual sum and its norm in one takes several times what the two take apart.
# - Slices that become one split into unequal parts. On CUDA, a split sends its sizes to the device in each run, in four
#   transfers. A captured graph would send them again, from memory of the host that may be another's by then.
_UNWANTED = {"cpu": ["SkipLayerNormFusion"], "cuda": ["GatherSliceToSplitFusion"]}
# What the names of inputs begin with that bring adapters.
_ADAPTER = "adapter"
# The graph id of a run that is not captured, because its shape comes once.
_NO_GRAPH = -1
# Operators that do a model's work. Without a kernel on the device they would run on the host, each after a copy of its
# inputs. What else runs on the host is small: ONNX Runtime itself puts the integers there that shapes are made of.
_WORK = {
    "Attention",
    "Conv",
    "FusedMatMul",
    "GatherBlockQuantized",
    "Gemm",
    "GroupQueryAttention",
    "GRU",
    "LSTM",
    "MatMul",
    "MatMulNBits",
    "MultiHeadAttention",
}


class Value:
    """A tensor in a device's memory. Its content is whatever was there."""

    def __init__(self, shape: tuple[int, ...], element_type: int, device: Device) -> None:
        self._dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
        self._memory = DeviceMemory(math.prod(shape) * self._dtype.itemsize, device)
        self.block = Block(self._memory.pointer, shape, element_type, self._dtype.itemsize, device, self._memory)

    @staticmethod
    def like(array: np.ndarray, device: Device) -> Value:
        """Return a tensor of an array's shape and type."""
        return Value(array.shape, element_type_of(array.dtype), device)

    def send(self, array: np.ndarray) -> None:
        """Copy an array of this shape and type to the device. It is there when this returns."""
        self._memory.send(array)

    def fetch(self) -> np.ndarray:
        """Copy the tensor to the host."""
        array = np.empty(self.block.shape, self._dtype)
        self._memory.fetch(array)
        return array


class Session:
    """One ONNX graph, ready to run from any thread. `run` and `Bound.run` release the GIL.

    One session serves prefill and decode of all lanes, because packed weights are held once for each session.

    Whatever uses a device does so inside the gate to it.
    """

    def __init__(
        self,
        model: Path | bytes,
        num_threads: int,
        device: Device = HOST,
        *,
        captures: bool = False,
        packs: bool = True,
        halt: Halt | None = None,
        weights: SharedWeights | None = None,
    ) -> None:
        """Open a graph. Without `packs`, weights stay in their file's pages, and each run packs what it multiplies.

        A graph in memory may have its `weights` in files, and on the device already.

        `halt` ends the opening between two of its passes, and each run between two operators.
        """
        options = ort.SessionOptions()
        # Without this, ONNX Runtime would size its pool by the machine, not by the container. Beside a device, only the
        # integers of shapes are computed here.
        options.intra_op_num_threads = num_threads if device.kind == "cpu" else 1
        options.inter_op_num_threads = 1
        # A pattern is cached for each shape and never evicted. Here, shapes come and go.
        options.enable_mem_pattern = False
        # What fails is raised, with the same words. ONNX Runtime's own line would go past our log.
        options.log_severity_level = _FATAL
        options.add_session_config_entry("session.disable_prepacking", str(int(not packs)))
        # Threads that share a run's products meet hundreds of times in it, so they spin there. Between runs they sleep.
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(options.intra_op_num_threads > 1)))
        options.add_session_config_entry("session.force_spinning_stop", "1")
        for name, value in SESSION_ENTRIES.items():
            options.add_session_config_entry(name, value)
        # It reads them as long as it is open.
        self._weights = weights
        if weights:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights.folder)
            for name, value in weights.values.items():
                options.add_initializer(name, value)
        if device.kind != "cpu":
            # For _verify_placement.
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        halt = halt or Halt()
        halt.watch(partial(options.set_load_cancellation_flag, True))
        self.device = device
        self.captures = captures
        self._gate = device_gate_of(device)
        # Each captured run has an id of its own. One that were used again would replay what was captured first.
        self._graph_ids = itertools.count(1)
        # Options without an id would cost each run 30 us: ONNX Runtime asks for it, and catches an exception.
        self.run_options = _run_options(_NO_GRAPH)
        halt.watch(partial(setattr, self.run_options, "terminate", True))
        provider = (_PROVIDERS[device.kind], _provider_options(device, captures=captures))
        source = model if isinstance(model, bytes) else str(model)
        # No fallback at opening either. It would be a session on the host, and a line on stdout.
        with self._gate:
            self.opened = ort.InferenceSession(
                source, options, providers=[provider], enable_fallback=0, disabled_optimizers=_UNWANTED[device.kind]
            )
        self.input_names = [port.name for port in self.opened.get_inputs()]
        self.output_names = [port.name for port in self.opened.get_outputs()]
        self._without_adapters = _without_adapters(self.opened)
        if device.kind != "cpu":
            self._verify_placement()

    def width(self, output: str) -> int:
        """Return how long the last axis of an output is, which the graph says."""
        shape: list[int] = self.opened.get_outputs()[self.output_names.index(output)].shape
        return shape[-1]

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Run once on arrays of any shape that the graph admits. Returns outputs by name."""
        fed = {**self._without_adapters, **inputs}
        with self._gate:
            return dict(zip(self.output_names, self.opened.run(None, fed, self.run_options), strict=True))

    def run_there(self, inputs: Arrays) -> dict[str, Block]:
        """Run once on arrays and leave the outputs where they were computed."""
        with self._gate:
            binding = self.opened.io_binding()
            for name, array in inputs.items():
                binding.bind_cpu_input(name, array)
            for name in self.output_names:
                binding.bind_output(name, self.device.kind, self.device.index)
            self.opened.run_with_iobinding(binding, self.run_options)
            values = binding.get_outputs()
        return {
            name: _block_of_value(value, self.device) for name, value in zip(self.output_names, values, strict=True)
        }

    def bind(self, inputs: Mapping[str, Block], outputs: Mapping[str, Block]) -> BoundSession:
        """Tie ports to memory. Each `run` reads the inputs' memory as it is then, and writes the outputs' memory.

        An input in the host's memory that the graph reads on a device would be copied now and never again.

        Inputs that bring adapters need not be there. Then no row has one.
        """
        inputs = {name: block_of(array) for name, array in self._without_adapters.items()} | dict(inputs)
        with self._gate:
            return BoundSession(self, self.opened, inputs, outputs, self._graph_ids)

    def __del__(self) -> None:
        # Its memory goes back to the device, which no capture survives.
        if getattr(self, "_gate", None) is GATE:
            GATE.free(vars(self).clear)

    def _verify_placement(self) -> None:
        """Refuse a graph whose work would be done on the host, silently and slowly."""
        # session.disable_cpu_ep_fallback would refuse those integers too.
        provider = _PROVIDERS[self.device.kind]
        if provider not in self.opened.get_providers():
            raise BundleError(f"ONNX Runtime opened the graph without {provider}; the log says why")
        parts = self.opened.get_provider_graph_assignment_info()
        strays = {node.op_type for part in parts if part.ep_name != provider for node in part.get_nodes()} & _WORK
        if strays:
            raise BundleError(
                f"{', '.join(sorted(strays))} of this graph cannot run on {self.device.kind}. CUDA attends in half "
                "precision only: export with --precision fp16, bf16 or int4-fp16"
            )


class BoundSession:
    """A session tied to memory. Binding many ports costs 100 us and more, running a bound session 10 us."""

    def __init__(
        self,
        session: Session,
        opened: Any,
        inputs: Mapping[str, Block],
        outputs: Mapping[str, Block],
        graph_ids: Iterator[int],
    ) -> None:
        """`opened` is what the session has opened."""
        self._binding = opened.io_binding()
        self.opened = opened
        # It stays open as long as something is bound to it.
        self.session = session
        self._gate = device_gate_of(session.device)
        self._graph_ids = graph_ids
        self._options = session.run_options
        # Who has captured it.
        self.thread: threading.Thread | None = None
        # The binding holds no reference to the memory, so these hold it.
        self.inputs = dict(inputs)
        self.outputs = outputs
        # The inputs that bring adapters, and what they were given last.
        self.adapter_ports = [name for name in inputs if name.startswith(_ADAPTER)]
        self.adapted: object = None
        for bind, blocks in ((self._binding.bind_input, inputs), (self._binding.bind_output, outputs)):
            for name, block in blocks.items():
                device = block.device
                bind(name, device.kind, device.index, block.element_type, block.shape, block.pointer)

    def rebind(self, inputs: Mapping[str, Block]) -> None:
        """Let some inputs read other memory from now on."""
        self.inputs |= inputs
        with self._gate:
            for name, block in inputs.items():
                kind, index = block.device.kind, block.device.index
                self._binding.bind_input(name, kind, index, block.element_type, block.shape, block.pointer)

    def run(self) -> None:
        """Run once, in place."""
        if self.thread:
            # In another thread ONNX Runtime would capture anew, among all others.
            assert self.thread is threading.current_thread(), "another thread has captured this run. This is a bug."
        with self._gate:
            self.opened.run_with_iobinding(self._binding, self._options)

    def values(self) -> list[Any]:
        """Return the outputs of the last run as ONNX Runtime's own values. They hold no reference to the memory."""
        with self._gate:
            values: list[Any] = self._binding.get_outputs()
        return values

    def capture(self) -> None:
        """Do as `run`. If the session captures, all later runs replay this one, in this thread and over this memory.

        Nobody else uses a device meanwhile. That is short: a run before has left the plans and the memory that are
        needed.
        """
        self.run()
        if self.session.captures and not self.thread:
            options = _run_options(next(self._graph_ids))
            with GATE.alone():
                self.opened.run_with_iobinding(self._binding, options)
            self._options, self.thread = options, threading.current_thread()


def providers() -> list[str]:
    """Return what this ONNX Runtime was built to run graphs on. Whether it can, `verify_device` tries."""
    names: list[str] = ort.get_available_providers()
    return names


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a run failed because memory ran out, the host's or a device's."""
    # ONNX Runtime has no class for it. Its arena, the C++ library and CUDA each say it in words of their own.
    words = ("Failed to allocate memory", "bad_alloc", "bad allocation", "out of memory")
    is_theirs = type(error).__module__ == ort.capi.onnxruntime_pybind11_state.__name__
    return isinstance(error, MemoryError) or (is_theirs and any(each in str(error) for each in words))


def verify_device(device: Device) -> None:
    """Raise ConfigError unless this ONNX Runtime can run graphs on the device."""
    if device.kind == "cpu":
        return
    where, provider = f"{both_names('device')}: {device.kind}", _PROVIDERS[device.kind]
    if provider not in ort.get_available_providers():
        raise other_build(device)
    # The CUDA libraries that the gpu extra brings lie among Python's packages, where no loader looks for them.
    ort.preload_dlls()
    try:
        # ONNX Runtime loads CUDA with the first tensor that lies there.
        ort.OrtValue.ortvalue_from_shape_and_type((1,), FLOAT, device.kind, device.index).numpy()
    except RuntimeError as error:
        if (num_devices := cudart.num_devices()) is not None and device.index >= num_devices:
            there = f"CUDA has {num_devices}, counted from 0"
            raise ConfigError(f"{both_names('cuda_device')}: there is no device {device.index}; {there}") from error
        raise ConfigError(
            f"{where} device {device.index} cannot be opened; the lines above may say why. ONNX Runtime needs CUDA and "
            "cuDNN, which the gpu extra brings, and a driver for them"
        ) from error
    if cudart.num_devices() is None:
        raise ConfigError(f"{where}: CUDA's runtime library (libcudart.so) is not among those that were loaded")


def _run_options(graph_id: int) -> Any:
    """Of a session that captures: the first run with a graph's id captures it, later ones replay it."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def _without_adapters(session: Any) -> dict[str, np.ndarray]:
    """What the inputs of a graph that bring adapters read where no row has one: no groups."""
    arrays = {}
    for port in session.get_inputs():
        if port.name.startswith(_ADAPTER):
            shape = [size if isinstance(size, int) else 0 for size in port.shape]
            arrays[port.name] = np.zeros(shape, np.int64 if port.name in ADAPTER_PORTS else np.float32)
    return arrays


def _block_of_value(value: Any, device: Device) -> Block:
    shape = tuple(value.shape())
    item_bytes = value.tensor_size_in_bytes() // math.prod(shape)
    return Block(value.data_ptr(), shape, value.element_type(), item_bytes, device, value)


def _provider_options(device: Device, *, captures: bool) -> dict[str, str]:
    if device.kind == "cpu":
        return {}
    # Of an id that is given, ONNX Runtime 1.31 prints that it has no plugin for it, once for each session. 0 is what it
    # takes without one.
    which = {"device_id": str(device.index)} if device.index else {}
    return which | {
        "enable_cuda_graph": str(int(captures)),
        # By default, what is asked for grows to a power of two: 3.3 GB of weights would take 4 GB.
        "arena_extend_strategy": "kSameAsRequested",
        # By default, convolutions would be timed anew for each batch size, within a request.
        "cudnn_conv_algo_search": "HEURISTIC",
        # TF32 has ten bits of mantissa, which is not what an fp32 bundle promised.
        "use_tf32": "0",
    }
