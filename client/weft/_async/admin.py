"""A client of a server's admin port: it changes which models the server has."""

from collections.abc import Mapping

import grpc

from weft import _answers
from weft._async.client import AsyncClient
from weft._fields import fill
from weft._model import Model
from weft_proto.v1 import admin_pb2, admin_pb2_grpc


class AsyncAdminClient(AsyncClient):
    """Talks to the admin port of one server from asyncio. A change goes on when the task that waits is cancelled."""

    def __init__(
        self,
        target: str = "localhost:7072",
        *,
        timeout: float = 600.0,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        metadata: Mapping[str, str] | None = None,
        wait: float = 0.0,
        proxy: str | None = None,
    ) -> None:
        """Do as `AsyncClient` does, with another port, and more patience: a large model takes minutes to load."""
        super().__init__(
            target,
            timeout=timeout,
            credentials=credentials,
            token=token,
            metadata=metadata,
            watch_health=False,
            wait=wait,
            proxy=proxy,
        )

    def _connect(self) -> None:
        super()._connect()
        self._admin = admin_pb2_grpc.ModelAdminServiceStub(self._control)

    async def load_model(
        self,
        name: str,
        version: int | None = None,
        *,
        version_label: str = "",
        share: float | None = None,
        timeout: float | None = None,
    ) -> Model:
        """Load a version of the server's repository, by default the highest, and return when it answers.

        `version_label` is put on it in the same moment: "stable" or "canary", a canary with its `share` of requests.
        FailedPrecondition when the bundle is refused or finds no room; then nothing has changed.
        """
        request = admin_pb2.LoadModelRequest()
        fill(request, name=name, version=version, version_label=version_label, share=share)
        response = await self._call(self._admin.LoadModel, request, timeout)
        return _answers.model(response.model)

    async def unload_model(self, name: str, version: int, *, timeout: float | None = None) -> None:
        """Take a version away, and return when its memory is free. The requests that it has are finished."""
        request = admin_pb2.UnloadModelRequest()
        fill(request, name=name, version=version)
        await self._call(self._admin.UnloadModel, request, timeout)

    async def swap_model(self, name: str, version: int | None = None, *, timeout: float | None = None) -> Model:
        """Load a version, by default the highest, let it take over, and unload all others of the model.

        If it is refused, nothing has changed.
        """
        request = admin_pb2.SwapModelRequest()
        fill(request, name=name, version=version)
        response = await self._call(self._admin.SwapModel, request, timeout)
        return _answers.model(response.model)

    async def set_label(
        self,
        name: str,
        version_label: str,
        version: int | None,
        *,
        share: float | None = None,
        timeout: float | None = None,
    ) -> None:
        """Put "stable" or "canary" on a version that is loaded, or with None take it away.

        `share` is a canary's share of the requests that name neither version nor label, by default 0.
        """
        request = admin_pb2.SetLabelRequest()
        fill(request, name=name, version_label=version_label, version=version, share=share)
        await self._call(self._admin.SetLabel, request, timeout)
