"""What the vector commands do with a model."""
