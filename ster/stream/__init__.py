"""The residual stream as indices and tables: pure arithmetic, no weights."""
