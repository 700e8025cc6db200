"""What settings are: numbers in a range, and texts of a form. Each says in its own words what it must be."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_DEVICE = re.compile(r"[0-9]|[1-5][0-9]|6[0-3]")
_KEY = re.compile(r"[a-z0-9_.-]{1,64}")
# One tenant and its weight.
_WEIGHT = re.compile(r"[^\s,]{1,64}=(?=.*[1-9])\d{1,3}(\.\d{1,2})?")
# As browsers send it: https://www.rfc-editor.org/rfc/rfc6454#section-6.2
_ORIGIN = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(:\d{1,5})?")


def _check_devices(text: str) -> str:
    numbers = text.split(",")
    if not all(map(_DEVICE.fullmatch, numbers)):
        raise ValueError("must be numbers from 0 to 63, such as `0` or `0,1`")
    if len(set(numbers)) < len(numbers):
        raise ValueError("must name each device once")
    return text


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("must be 1 to 64 of a-z, 0-9, `_`, `.` and `-`")
    if key == "authorization" or key.startswith(("grpc-", "weft-")) or key.endswith("-bin"):
        raise ValueError("must be a key that has no other meaning, for instance `x-tenant`")
    return key


def _check_weights(text: str) -> str:
    if not all(map(_WEIGHT.fullmatch, text.split(","))):
        raise ValueError("must be like `search=4,nightly=0.5`, with weights from 0.01 to 999")
    tenants = [each.rpartition("=")[0] for each in text.split(",")]
    if len(set(tenants)) < len(tenants):
        raise ValueError("must name each tenant once")
    return text


def _check_origins(text: str) -> str:
    if text != "*" and not all(map(_ORIGIN.fullmatch, text.split(","))):
        raise ValueError("must be `*`, or origins such as `https://app.example.com`, with commas between them")
    return text


Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
# Numbers of devices.
Devices = Annotated[str, AfterValidator(_check_devices)]
TenantKey = Annotated[str, AfterValidator(_check_key)]
TenantWeights = Annotated[str, AfterValidator(_check_weights)]
# Of pages of browsers.
Origins = Annotated[str, AfterValidator(_check_origins)]
