"""Python's search for garbage, kept off what lasts as long as a model."""

from __future__ import annotations

import gc


def keep_objects() -> None:
    """Search once among all objects, and let no later search look at those that are left.

    A search through a whole server takes 30 to 100 ms, in which no thread of it runs Python. One comes by chance,
    beside requests. What lives when models have loaded is nearly all there is. It still dies when nobody holds it.
    What was kept by an earlier call is searched again, so that no cycles gather.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def search_all() -> None:
    """Let the next search look at all objects again: a model has gone, and may have left some that hold each other."""
    gc.unfreeze()
