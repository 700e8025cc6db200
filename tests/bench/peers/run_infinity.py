"""infinity-emb: an engine with a queue of its own, in this process, asked by `in_flight` callers at a time."""

import asyncio
import os
import shutil
import time

import infinity_emb
from adapter import Done, serve
from infinity_emb import AsyncEmbeddingEngine, EngineArgs
from infinity_emb.primitives import Device, InferenceEngine, PoolingMethod
from onnx_embedder import OnnxEmbedder


class Infinity(OnnxEmbedder):
    """Its engine of ONNX Runtime, which takes all processors."""

    engine = None

    def version(self):
        """Name and version of what is measured."""
        return f"infinity-emb {infinity_emb.__version__}"

    def form(self, folder, kind):
        """The directory `folder`/infinity-<kind>: it opens files that lie in no folder of a directory."""
        done, fresh = folder / f"infinity-{kind}", folder / f"infinity-{kind}.fresh"
        if not done.is_dir():
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(super().form(folder, kind), fresh)
            (fresh / "onnx" / f"{kind}.onnx").rename(fresh / f"{kind}.onnx")
            fresh.rename(done)
        return done

    def load(self, folder, workload, precision, setting):
        """Start the engine on an event loop that stays."""
        self.loop = asyncio.new_event_loop()
        # It finds files by their paths from here, and looks for these paths in the directory.
        os.chdir(self.form(folder, setting["kind"]))
        self.engine = AsyncEmbeddingEngine.from_args(
            EngineArgs(
                model_name_or_path=".",
                engine=InferenceEngine.optimum,
                device=Device.cpu,
                pooling_method=PoolingMethod.mean,
                batch_size=setting["batch"],
                model_warmup=False,
                onnx_disable_optimize=True,  # what it would do is done to one of the kinds
            )
        )
        self.loop.run_until_complete(self.engine.astart())

    def convert(self, requests):
        """As they come: it has a queue that sorts."""
        return requests

    def run(self, requests, in_flight):
        """A closed loop, as Weft's callers."""
        return self.loop.run_until_complete(self._closed_loop(requests, in_flight))

    async def _closed_loop(self, requests, in_flight):
        done, waiting = [None] * len(requests), iter(enumerate(requests))

        async def caller():
            for index, request in waiting:
                started = time.perf_counter()
                vectors, _ = await self.engine.embed(sentences=request["texts"])
                done[index] = Done(time.perf_counter() - started, vectors)

        await asyncio.gather(*(caller() for _ in range(in_flight)))
        return done

    def close(self):
        """End the engine."""
        if self.engine is not None:
            self.loop.run_until_complete(self.engine.astop())


if __name__ == "__main__":
    serve(Infinity())
