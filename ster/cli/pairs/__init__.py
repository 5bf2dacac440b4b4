"""``ster pairs``: contrastive pairs made and inspected."""
