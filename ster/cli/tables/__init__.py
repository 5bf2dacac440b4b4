"""Answers as a person at a terminal sees them; each file draws one subject."""
