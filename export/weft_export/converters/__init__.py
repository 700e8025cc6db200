"""Checkpoints of others, as ours."""
