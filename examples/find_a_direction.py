# %% [markdown]
# # Find a direction
#
# A probe, a fitted direction, how they compare, and where new texts lie. It runs as it is, on the toy checkpoint, whose weights are
# random: look at the moves, not at the numbers.

# %%
import numpy as np

import ster

ster.write_toy_checkpoint("toy")
runtime = ster.load("toy", device="cpu")
pairs = ster.PairSet.of(
    [
        ("the sea is calm .", "the sea is loud ."),
        ("a quiet evening lake .", "a hard storm ."),
        ("calm water is still .", "loud waves crash ."),
        ("the soft wind .", "the fast wind ."),
        ("the lake is quiet tonight .", "thunder rolls tonight ."),
        ("a soft breeze .", "a loud storm ."),
    ],
    trait_name="calm",
)
pairs

# %% [markdown]
# ## A direction
#
# Four pairs to fit it on, two to see whether it holds.

# %%
fitted = ster.PairSet(trait_name="calm", pairs=pairs.pairs[:4])
held_out = ster.PairSet(trait_name="calm", pairs=pairs.pairs[4:])
calm = runtime.train(fitted)
calm

# %%
runtime.evaluate(held_out, calm)

# %% [markdown]
# Two held-out pairs tell nothing: the interval and what random directions reach say so.

# %% [markdown]
# ## Which layer, which method?
#
# `optimize` chooses by what steering does to pairs that were not fitted on. The toy has no trait to find, and it says so:

# %%
import warnings

with warnings.catch_warnings(record=True, action="always") as said:
    chosen = runtime.optimize(pairs)
[str(each.message) for each in said]

# %%
chosen

# %% [markdown]
# By accuracy nothing is steered. It has a plot, and tells less:

# %%
ster.plots.accuracy(runtime.optimize(pairs, by="accuracy", holdout=0.5));

# %% [markdown]
# ## A probe of your own
#
# Any array becomes a vector, also `coef_` of a classifier of scikit-learn. Here, least squares:

# %%
acts = runtime.activations(fitted)
weights, *_ = np.linalg.lstsq(acts.layer(2), np.tile([1.0, -1.0], len(fitted)), rcond=None)
probe = ster.SteeringVector.of(weights, layers=2, model=runtime.model, trait_name="calm", method="least squares", unit=True)

# %% [markdown]
# ## Cosine by layer

# %%
calm.cosine(runtime.train(fitted, method="logistic"))

# %%
calm.cosine(probe)

# %% [markdown]
# ## Where new texts lie

# %%
calm.project(["the loud street .", "the calm lake ."], runtime).round(2)

# %%
ster.plots.pca(acts, 2, pairs=True);

# %% [markdown]
# Token by token:

# %%
tokens = runtime.activations(["the sea is calm . thunder rolls loud ."], tokens="all")
ster.plots.projections(tokens, calm);

# %%
ster.plots.projected_text(tokens, calm, 2)

# %% [markdown]
# ## Keep it

# %%
calm.save("calm.safetensors")
ster.SteeringVector.load("calm.safetensors")
