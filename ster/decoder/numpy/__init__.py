"""The decoder on the cpu."""
