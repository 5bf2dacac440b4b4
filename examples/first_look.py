# %% [markdown]
# # First look
#
# Reading the residual stream: which token, every token, lengths, a plane, and documents. This notebook runs as it is, on the toy
# checkpoint that ster writes itself; put a model of yours in its place. `pip install 'ster-mlx[notebook]'` brings the plots.

# %%
import ster

ster.write_toy_checkpoint("toy")
runtime = ster.load("toy", device="cpu")
runtime

# %% [markdown]
# Prompts may carry labels: here, what each is about.

# %%
prompts = [
    {"prompt": "the sea is calm and quiet tonight .", "topic": "calm"},
    {"prompt": "a soft breeze over the evening lake .", "topic": "calm"},
    {"prompt": "the still water is quiet .", "topic": "calm"},
    {"prompt": "thunder rolls loud over the harbor tonight .", "topic": "storm"},
    {"prompt": "the storm waves crash .", "topic": "storm"},
    {"prompt": "the fast wind is loud .", "topic": "storm"},
]
acts = runtime.activations(prompts)
acts

# %% [markdown]
# ## Which token is read?

# %%
runtime.show("the sea is calm .")

# %% [markdown]
# ## Norms by layer

# %%
ster.plots.norms(acts);

# %%
acts.to_pandas().groupby(["topic", "layer"])["norm"].median().unstack().round(2)

# %% [markdown]
# ## A plane, by label

# %%
ster.plots.pca(acts, 2, label="topic");

# %% [markdown]
# ## Every token

# %%
every = runtime.activations(["the sea is calm . thunder rolls loud ."], tokens="all")
every.to_pandas().query("layer == 3")[["token_position", "token_text", "norm"]].round(2)

# %% [markdown]
# ## Save, and read back without ster

# %%
acts.save("acts.safetensors")

# %%
from safetensors.numpy import load_file

load_file("acts.safetensors")["activations"].shape

# %% [markdown]
# ## Stop, and go on
#
# With `on_interrupt="keep"` the stop button leaves what is done. So that this notebook can run by itself, the next cell presses it
# when 3,000 prompts are read.

# %%
import random
import signal


class PressesStop:
    pressed = False

    def note(self, sentence):
        print(sentence)

    def warn(self, sentence):
        print(sentence)

    def progress(self, progress):
        if progress.prompts_done >= 3000 and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


words, draw = "the sea is calm quiet loud storm wind lake evening .".split(), random.Random(0)
many = [" ".join(draw.choices(words, k=12)) for _ in range(4000)]
stoppable = ster.load("toy", device="cpu", reporter=PressesStop())

# %%
kept = stoppable.activations(many, on_interrupt="keep")
kept

# %%
import numpy as np

rest = stoppable.activations(many[len(kept.prompts) :])
np.concatenate([kept, rest]).shape
