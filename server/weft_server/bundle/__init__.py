"""Reads a bundle and refuses a wrong one."""
