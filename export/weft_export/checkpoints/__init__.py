"""Checkpoints: what lies in their directory, what is asked of it, and examples to try a model on."""
