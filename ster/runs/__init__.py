"""Runs of an open checkpoint: planned, then looped over its blocks."""
