"""Proof that a bundle answers as its checkpoint does."""
