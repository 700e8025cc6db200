"""Where a model's graphs run, and what that changes for a lane."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from weft_proto.bundle_rules import HOST_PRECISIONS, ROUNDED, precision_name
from weft_proto.paging import is_paged
from weft_proto.v1 import bundle_pb2
from weft_server.config import ConfigError, both_names, flag_name
from weft_server.errors import BundleError

if TYPE_CHECKING:
    from weft_server.config import ServerConfig


@dataclass(frozen=True, slots=True)
class Device:
    """One device, by ONNX Runtime's name for its memory.

    Attributes:
        kind: cpu or cuda.
        index: which of the machine's devices of this kind.
        in_place: whether runs read and write the host's arrays where they lie. Otherwise tensors lie in the device's
            memory, and what the host sends or reads is copied.
        captures: whether decode runs are captured as CUDA graphs and replayed.
        least_rows: fewer rows than this are filled up in a run, where one row alone would have other bits. So it
            goes with a graph, and with the processor.
        row_multiple: what the number of a run's rows is filled up to a multiple of. It goes with a graph: see Graph in
            bundle.proto.
    """

    kind: Literal["cpu", "cuda"] = "cpu"
    index: int = 0
    in_place: bool = True
    captures: bool = False
    least_rows: int = 1
    row_multiple: int = 1

    @property
    def name(self) -> str:
        """For people: cpu, cuda:0, cuda:1 ..."""
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    def batches(self, num_slots: int) -> list[int]:
        """Return how many rows a decode run has for each number of running ones, from 0 to `num_slots`.

        On the host it has the running rows, filled up where they have to be. On a device a row costs next to
        nothing, and a new shape costs much. So there are few sizes: 1, 2, 4 and multiples of 8, which are the sizes
        that vLLM captures.
        """
        if self.in_place:
            return [0, *(min(num_slots, self.filled(num_rows)) for num_rows in range(1, num_slots + 1))]
        sizes = [*(size for size in (0, 1, 2, 4) if size < num_slots), *range(8, num_slots, 8), num_slots]
        return [next(size for size in sizes if size >= num_rows) for num_rows in range(num_slots + 1)]

    def filled(self, num_rows: int) -> int:
        """Return how many rows a run on the host has for so many."""
        return max(self.least_rows, -(-num_rows // self.row_multiple) * self.row_multiple)


HOST = Device()


def devices_of(config: ServerConfig) -> list[Device]:
    """Return the devices that the settings name. All are of one kind.

    Raises:
        ConfigError: other settings do not fit them. It has a line for each.
    """
    is_cpu = config.device == "cpu"
    numbers = config.cuda_devices
    unfit = {
        "cuda_graphs": config.cuda_graphs and is_cpu and "are for --device cuda",
        # A captured graph belongs to the thread that captured it, and two lanes would only take turns.
        "lanes": config.lanes > len(numbers)
        and not is_cpu
        and f"a CUDA device has one lane, and {flag_name('cuda_device')} names {len(numbers)}, not {config.lanes}",
    }
    if faults := [f"{both_names(field)}: {why}" for field, why in unfit.items() if why]:
        raise ConfigError("\n".join(faults))
    if is_cpu:
        return [HOST]
    return [Device("cuda", number, in_place=False, captures=config.cuda_graphs) for number in numbers]


def verify_build(device: Device) -> None:
    """Raise ConfigError unless an ONNX Runtime is installed that has a library for the device. Nothing is loaded."""
    if device.kind == "cpu":
        return
    package = find_spec("onnxruntime")
    folders = (package and package.submodule_search_locations) or ()
    if not any(any(Path(folder).glob(f"capi/*onnxruntime_providers_{device.kind}.*")) for folder in folders):
        raise other_build(device)


def other_build(device: Device) -> ConfigError:
    """Return what is raised where the ONNX Runtime that is installed was built without the device."""
    return ConfigError(
        f"{both_names('device')}: {device.kind} needs another ONNX Runtime: the extra gpu instead of the extra server, "
        "never both. Install 'weft-serving[gpu]' with pip, or '.[gpu]' in a clone"
    )


def verify_precision(precision: bundle_pb2.Precision.ValueType, device: Device) -> None:
    """Raise BundleError if a device has no kernels at all for a precision."""
    if precision == bundle_pb2.PRECISION_BF16 and device.kind == "cpu":
        raise BundleError("bf16 is for --device cuda; on the CPU serve a bundle of --precision fp32 or int8")
    if precision in ROUNDED & HOST_PRECISIONS and device.kind == "cuda":
        name = precision_name(precision)
        raise BundleError(f"{name} is for --device cpu; on CUDA serve a bundle of --precision fp16, bf16 or int4-fp16")


def verify_adapters(manifest: bundle_pb2.BundleManifest, device: Device) -> None:
    """Raise BundleError if a model takes adapters and the device runs none."""
    if manifest.adapters.layers and not device.in_place:
        raise BundleError(f"it takes adapters, which no server runs on {device.kind}: export it without --adapters")


def verify_caches(manifest: bundle_pb2.BundleManifest, device: Device) -> None:
    """Raise BundleError if a device does not run graphs whose caches lie in blocks."""
    if device.in_place and is_paged(manifest.states):
        raise BundleError("its cache lies in blocks, which is for --device cuda; on the CPU export without --paged")
