"""The model families that Weft exports, one file each."""
