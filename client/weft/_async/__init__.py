"""The clients, written for asyncio. `make sync` makes those of `_sync/` of them, which block."""
