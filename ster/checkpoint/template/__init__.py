"""The model's own chat template, a stranger's program, in a confined process."""
