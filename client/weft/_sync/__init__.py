"""The clients that block. `make sync` makes them of those of `_async/`."""
