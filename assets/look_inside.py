"""Print the beginning of an activation artifact: ``look_inside.py FILE``."""

import sys

import ster

activations = ster.Activations.load(sys.argv[1])
print(activations)
first = ", ".join(f"{value:.4f}" for value in activations.layer(0)[0, :3])
print(f"layer 0 of {activations.prompts[0]!r} begins {first}")
