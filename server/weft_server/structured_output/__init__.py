"""Holds answers to a grammar or a JSON Schema: both are read here, and tried apart."""
