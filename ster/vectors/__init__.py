"""Directions in the residual stream: fitted, chosen, measured, and kept."""
