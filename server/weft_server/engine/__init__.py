"""Runs sequences: the waiting room, the lanes and their steps."""
