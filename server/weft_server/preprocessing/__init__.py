"""Turns text, images and audio into what graphs take, and token ids into text."""
