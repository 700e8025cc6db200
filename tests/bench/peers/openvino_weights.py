"""The weights in OpenVINO's form: what its exporter of Hugging Face folders writes, and classifiers in 8 bits."""

import os
import shutil
import subprocess
import sys

import nncf
import numpy as np
import openvino
from adapter import HUGGING_FACE
from images import pixel_values
from workloads import WORKLOADS

_TASKS = {"llama": "text-generation-with-past", "bert": "text-classification", "vit": "image-classification"}
# What it calibrates classifiers on: requests that are not those of a round.
_NUM_EXAMPLES = 32


def openvino_folder(folder, name, options=()):
    """The folder `folder`/openvino-<name>, which its exporter writes with these options, unless it is there."""
    done, fresh = folder / f"openvino-{name}", folder / f"openvino-{name}.fresh"
    if done.is_dir():
        return done
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino", "-m", folder / HUGGING_FACE]
    command += ["--task", _TASKS[folder.name], *options, fresh]
    subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    fresh.rename(done)
    return done


def int8_classifier(folder):
    """The folder `folder`/openvino-int8: weights and activations in 8 bits, calibrated on requests."""
    done, fresh = folder / "openvino-int8", folder / "openvino-int8.fresh"
    if done.is_dir():
        return done
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    model = openvino.Core().read_model(openvino_folder(folder, "fp32", ("--weight-format", "fp32")) / MODEL)
    rounded = calibrated(model, folder.name, lambda request: feeds(model, folder, [request]))
    openvino.save_model(rounded, fresh / MODEL, compress_to_fp16=False)
    fresh.rename(done)
    return done


def calibrated(model, shape, feeds_of):
    """The model with weights and activations in 8 bits, calibrated on the shape's requests, fed by `feeds_of`."""
    workload = next(each for each in WORKLOADS.values() if each.shape == shape)
    requests = workload.requests(_NUM_EXAMPLES, seed="calibrate")
    examples = nncf.Dataset([feeds_of(request) for request in requests])
    return nncf.quantize(model, examples, model_type=nncf.ModelType.TRANSFORMER, subset_size=_NUM_EXAMPLES)


MODEL = "openvino_model.xml"


def feeds(model, folder, requests):
    """What a classifier reads of requests, by the names of its inputs."""
    if "image" in requests[0]:
        return {"pixel_values": pixel_values(folder, [request["image"] for request in requests])}
    ids = np.zeros((len(requests), max(len(request["ids"]) for request in requests)), np.int64)
    mask = np.zeros_like(ids)
    for row, marks, request in zip(ids, mask, requests, strict=True):
        row[: len(request["ids"])] = request["ids"]
        marks[: len(request["ids"])] = 1
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: given[name] for name in (port.get_any_name() for port in model.inputs)}
