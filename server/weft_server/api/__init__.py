"""Calls by HTTP: connections of HTTP/1.1, a table of routes, and the Connect protocol."""
