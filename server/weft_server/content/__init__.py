"""Turns text and pictures into what graphs take, and token ids into text."""
