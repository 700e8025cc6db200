"""The commands of the server: `weft serve` and `weft doctor`."""
