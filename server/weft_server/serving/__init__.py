"""Carries a request from the door to an engine and back; makes models of bundles."""
