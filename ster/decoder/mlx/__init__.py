"""The decoder on Metal and CUDA; the only package that imports mlx."""
