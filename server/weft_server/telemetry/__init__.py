"""Counts and logs."""
