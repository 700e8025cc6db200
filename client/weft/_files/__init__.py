"""Many inputs from a file, their answers into another: what `--file` does."""
