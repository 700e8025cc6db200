"""Texts that recipes read or make up: documentation, notices, rules of words."""
