"""Modules that take half a second or more to import, imported when a test uses them: each worker collects all files."""

import importlib
from types import ModuleType


class Late(ModuleType):
    """Stands for a module, and imports it when something of it is asked for."""

    def __getattr__(self, name):
        # pytest looks for marks of its own in all that a file has.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)
