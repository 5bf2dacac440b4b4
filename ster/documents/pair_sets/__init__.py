"""Pairs as people have them: files, tables, labels and personas; their splits."""
