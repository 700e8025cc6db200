"""Verifies that a bundle answers as its checkpoint does."""
