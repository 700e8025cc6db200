"""weft_export."""
