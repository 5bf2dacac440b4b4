"""Activations: the value that notebooks hold, and its documents by suffix."""
