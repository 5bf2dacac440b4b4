# %% [markdown]
# # Steer
#
# Adding a direction while the model writes. It runs as it is, on the toy checkpoint, whose words are noise with and without it.

# %%
import ster

ster.write_toy_checkpoint("toy")
runtime = ster.load("toy", device="cpu")
pairs = ster.PairSet.of(
    [
        ("the sea is calm .", "the sea is loud ."),
        ("a quiet evening lake .", "a hard storm ."),
        ("calm water is still .", "loud waves crash ."),
        ("the soft wind .", "the fast wind ."),
    ],
    trait_name="calm",
)
calm = runtime.train(pairs, layers="1..4")
calm

# %% [markdown]
# ## With and without
#
# Steering is an argument: nothing is switched on, nothing must be switched off.

# %%
prompt = "describe the evening lake ."
runtime.generate(prompt, max_new_tokens=6), runtime.generate(prompt, max_new_tokens=6, steer=calm * 2)

# %% [markdown]
# ## Many prompts, many strengths
#
# `0.5n` is half the stream's own length at each layer.

# %%
prompts = [prompt, "the storm waves crash ."]
answers = runtime.answers(prompts, steer=calm, strengths=["-0.5n", 0, "0.5n"], max_new_tokens=6)
[(each.prompt, each.strength_word or each.strength, each.text) for each in answers]

# %% [markdown]
# ## Several vectors

# %%
other = runtime.train(pairs, layers="1..4", method="pca")
runtime.generate(prompt, max_new_tokens=6, steer=[calm * 2, other * -1])

# %% [markdown]
# ## Does it do what it should?
#
# How much more steering raises the log-probability of the positive sides than that of the negative ones, and what it costs. The toy's
# weights are random, so no strength does better than chance, the grey bars, and ster says so:

# %%
import warnings

with warnings.catch_warnings(record=True, action="always") as said:
    evaluation = runtime.evaluate(pairs, calm, ster.StrengthTrial.of("-4,-2,2,4"))
ster.plots.strengths(evaluation)
[str(each.message) for each in said]

# %% [markdown]
# ## What it does to the stream
#
# A layer is read before its own vector is added, so layer 1 shows nothing of it.

# %%
import numpy as np

plain, steered = runtime.activations(prompts), runtime.activations(prompts, steer=calm * 2)
np.linalg.norm(steered.array - plain.array, axis=2).round(2)
