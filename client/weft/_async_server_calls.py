"""What a client asks of the server itself, in asyncio's way: its models, and whether it serves."""
# ruff: noqa: ASYNC109 - the timeout is the deadline that the server is told, not only how long we wait

import asyncio
from typing import Any

from weft import _answers, _standing
from weft._async_calls import AsyncCalls
from weft._channel import health
from weft._looks import Looks
from weft._model import Model
from weft._types import Health
from weft_proto.v1.model_pb2 import ListModelsRequest


class AsyncServerCalls(AsyncCalls):
    """What `AsyncClient` has on its connections: where models are listed, and where health is asked for."""

    _model: Any
    _check: Any

    async def list_models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """List every version of every model, by name and then version."""
        response = await self._call(self._model.ListModels, ListModelsRequest(), timeout)
        return tuple(_answers.model(each) for each in response.models)

    async def get_model(self, name: str, version: int | None = None, *, timeout: float | None = None) -> Model:
        """Tell of one model, by default of its highest version that is ready."""
        response = await self._call(self._model.GetModel, _standing.get_model_request(name, version), timeout)
        return _answers.model(response.model)

    async def health(self, service: str = "", *, timeout: float | None = None) -> Health:
        """Ask whether the server, or a service such as "live" or "model/<name>", serves; NotFound if there is none."""
        return health(await self._call_once(self._check, _standing.health_request(service), timeout))

    async def wait_until_ready(self, timeout: float | None = None) -> None:
        """Wait until a server is there and serves; DeadlineExceeded when that takes longer than `timeout` seconds."""
        looks = Looks(self._settings, timeout)
        for left in looks.one_by_one():
            with looks.look():
                if await self.health(timeout=left) is Health.SERVING:
                    return
            await asyncio.sleep(looks.pause())
