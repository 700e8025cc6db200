"""A lifecycle over a repository of tiny bundles, in this process."""

import asyncio
import shutil

from weft_server.config import read_config
from weft_server.lifecycle.lifecycle import Lifecycle
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import RequestContext
from weft_server.telemetry.metrics import Metrics


class Keeping:
    """Models that a lifecycle has loaded; on the way out nothing is left of them.

    `changes` lists what the health service would be told: name, and whether it answers.
    """

    def __init__(self, repository, **settings):
        self.config = read_config(repository=repository, **{"slots": 2, "lanes": 1} | settings)
        self.metrics, self.models, self.changes = Metrics(), ModelRegistry([]), []
        self._calls = []

    async def __aenter__(self):
        async def changed(name):
            self.changes.append((name, [entry.version for entry in self.models.versions(name) if entry.answers]))

        async def settled():
            await asyncio.sleep(0)

        self.lifecycle = Lifecycle(
            self.models, self.config, self.metrics, changed=changed, settled=settled, num_places=2
        )
        return self

    async def __aexit__(self, *_):
        self.lifecycle.close()
        for entry in self.models.entries:
            if entry.model:
                assert await asyncio.to_thread(entry.model.stop, 30)

    async def take(self, task, selector, request_id="r"):
        """Take a model for a call, which is returned too."""
        call = RequestContext("test", request_id=request_id)
        model = await self.models.take(call, selector, task)
        self._calls.append(call)
        return call, model

    def end_calls(self):
        """End all calls that took a model."""
        while self._calls:
            self._calls.pop().let_go()

    def standing(self):
        """Version to state, of all models."""
        return {(entry.name, entry.version): entry.state for entry in self.models.entries}

    def series(self):
        """Models that have metrics, by name and version."""
        return {labels[:2] for labels in self.metrics.models if labels[0]}


def repository_of(tmp_path, bundle, *versions, name="m"):
    """A repository with copies of one bundle."""
    for version in versions:
        shutil.copytree(bundle, tmp_path / name / str(version))
    return tmp_path
