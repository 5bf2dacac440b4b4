"""The decoder contract, and its two implementations: numpy, and MLX."""
