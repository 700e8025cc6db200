"""Runs sequences: the queue, the lanes and their steps."""
