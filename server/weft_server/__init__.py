"""weft_server."""
