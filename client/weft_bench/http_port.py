"""The HTTP port of a server, as a load needs it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from google.protobuf.message import Message

from weft._model import Model
from weft._server import Server
from weft_bench.asking import to_binary
from weft_bench.connect_form import ConnectForm, read_json, to_json
from weft_bench.form import Form
from weft_bench.http_caller import http_caller, list_models
from weft_bench.load import Caller
from weft_bench.openai_form import OpenAiForm
from weft_bench.workload import Method

# The forms in which requests and answers travel, by what `--http` calls them.
FORMS: dict[str, Form] = {
    "proto": ConnectForm("proto", to_binary, Method.read),
    "json": ConnectForm("json", to_json, read_json),
    "openai": OpenAiForm(),
}


class HttpPort:
    """See `ports.Port`. `form` is one of FORMS."""

    def __init__(self, server: Server, form: str) -> None:
        self._settings = server.settings()
        self._tls = server.tls_context()
        self._form = FORMS[form]

    def list_models(self) -> tuple[Model, ...]:
        """Ask which models there are. Raises Error."""
        return asyncio.run(list_models(self._settings, self._tls))

    def pack(self, method: Method) -> Callable[[Message], bytes]:
        """Return what makes bytes of a method's requests. Raises InvalidRequest for one that the form lacks."""
        self._form.path(method)
        return partial(self._form.payload, method=method)

    def calling(self, method: Method, model: str) -> AbstractAsyncContextManager[Caller]:
        """Return what connects, and then calls a method."""
        return http_caller(self._settings, self._tls, method, self._form, model)
