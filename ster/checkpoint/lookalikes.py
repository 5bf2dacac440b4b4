"""What people give in place of a checkpoint, told apart so that a refusal can name it.

Nothing here refuses: these are the causes under a refusal, each with the way out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from ster.documents.strict_json import JsonError, read_json
from ster.errors import SterError
from ster.text import quoted

ADAPTER_CONFIG = "adapter_config.json"
DIFFUSION_INDEX = "model_index.json"
POINTER_CAUSE = (
    "it is a Git LFS pointer, not the file that it stands for; `git lfs pull` in its "
    "folder fetches that"
)
NOT_READ = (".bin", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".npz")
_POINTER_START = b"version https://git-lfs"
# First bytes that are looked at: more than a pointer's or a GGUF file's mark takes.
HEAD_BYTES = 64
_GGUF = (
    "GGUF is llama.cpp's format; use the checkpoint that it was converted from, with "
    "its config.json and safetensors"
)
# Prefixes of tensor names in files that hold something else than a plain model.
_PREFIXES = {
    "base_model.model.": (
        "as a PEFT adapter's do; merge it into its base (merge_and_unload) and save "
        "the result"
    ),
    "language_model.": (
        "as those of the text part of a larger model do; save that part alone, or use "
        "the model's text-only edition"
    ),
    "model.language_model.": (
        "as those of the text part of a larger model do; save that part alone, or use "
        "the model's text-only edition"
    ),
    "_orig_mod.": "as torch.compile leaves them; save the model that was compiled",
    "module.": "as DistributedDataParallel leaves them; save the model inside it",
}
# Ends of names of tensors that quantizers write, where config.json says nothing of it.
_QUANTIZED = {
    ".qweight": "GPTQ's and AWQ's",
    ".absmax": "bitsandbytes'",
    ".weight_packed": "compressed-tensors'",
    ".weight_scale_2": "NVIDIA ModelOpt's",
    ".weight_scale": "those of fp8 with a scale for each matrix or row",
}
_MISTRAL_NAME = "layers.0.attention.wq.weight"


def is_pointer(data: bytes) -> bool:
    """Tell whether a file begins as a Git LFS pointer does."""
    return data.startswith(_POINTER_START)


def explain_head(data: bytes) -> str | None:
    """Tell by its first bytes what stands in a weight file's place, if it is known."""
    if is_pointer(data):
        return POINTER_CAUSE
    return f"it is a GGUF file; {_GGUF}" if data.startswith(b"GGUF") else None


def read_head(path: str | os.PathLike[str]) -> bytes:
    """Read a file's first bytes.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(HEAD_BYTES)


def kind_of_file(mode: int) -> str:
    """Name what is no regular file."""
    kinds = {
        stat.S_ISDIR: "a directory",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((kind for test, kind in kinds.items() if test(mode)), "no file")


def explain_place(path: str) -> list[str | BaseException]:
    """Say why a path is no readable file: a broken link, a folder, a pipe.

    Nothing is said of a file, or of a path where there is nothing.

    Args:
        path: Of a file that ought to be there.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(path):
            return []
        return [f"it is a link to {quoted(os.readlink(path))}, which is not there"]
    except (OSError, ValueError) as error:
        return [error]
    return [] if stat.S_ISREG(mode) else [f"it is {kind_of_file(mode)}, not a file"]


def explain_file(path: str) -> list[str]:
    """Say what kind of file was given as ``--model``; nothing where it is no file."""
    path = path.rstrip("/")
    if not os.path.isfile(path):
        return []
    try:
        is_gguf = read_head(path).startswith(b"GGUF")
    except OSError:
        is_gguf = False
    if is_gguf or path.endswith(".gguf"):
        return [f"it is a GGUF file, and --model takes a folder; {_GGUF}"]
    if path.endswith(".safetensors"):
        folder = os.path.dirname(path) or "."
        return [f"it is one weight file; --model takes the folder it lies in: {folder}"]
    return ["it is a file, and --model takes a checkpoint's folder"]


def explain_contents(names: Collection[str], fetch: Callable[[str], Path]) -> list[str]:
    """Say what a folder or repository holds in place of a model.

    Args:
        names: Its files.
        fetch: Returns the local path of one of them.
    """
    if ADAPTER_CONFIG in names or "adapter_model.safetensors" in names:
        base = "another model"
        if ADAPTER_CONFIG in names:
            with suppress(SterError, OSError, JsonError):
                base = _base_model(fetch(ADAPTER_CONFIG)) or base
        return [
            f"this is an adapter for {base}, not a model; merge it into that "
            "(peft's merge_and_unload) and save the result"
        ]
    if DIFFUSION_INDEX in names and "config.json" not in names:
        return [
            "this is a diffusion pipeline, which makes pictures or sound and writes no "
            "text from left to right; use a causal language model"
        ]
    found = [name for name in names if name.endswith(".gguf")]
    if found and not any(name.endswith(".safetensors") for name in names):
        return [f"what is there is {listed(found)}; {_GGUF}"]
    return []


def _base_model(path: Path) -> str | None:
    """Read which model an adapter belongs to."""
    config = read_json(path.read_bytes())
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return quoted(base[:200]) if isinstance(base, str) and base else None


def explain_no_weights(names: Collection[str]) -> list[str]:
    """Name the weights of other formats, where that is why there are none."""
    others = [name for name in names if name.endswith(NOT_READ)]
    if not others:
        return []
    return [f"only safetensors are read, and what is there is {listed(others)}"]


def explain_tokenizer(names: Collection[str]) -> list[str]:
    """Name a tokenizer of another format, where tokenizer.json is missing."""
    if "tekken.json" in names:
        return [
            "tekken.json is there, but only tokenizer.json is read; take it from this "
            "model's edition for transformers"
        ]
    if "tokenizer.model" in names:
        found = "tokenizer.model is"
    elif {"vocab.json", "merges.txt"} <= set(names):
        found = "vocab.json and merges.txt are"
    else:
        return []
    return [
        f"{found} there, but only tokenizer.json is read; transformers writes it: "
        "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    ]


def explain_tensors(names: Iterable[str]) -> list[str]:
    """Say whose tensor names these are, where a tensor that is needed is missing.

    Args:
        names: As they stand in the files.
    """
    names = list(names)
    for prefix, whose in _PREFIXES.items():
        if any(name.startswith(prefix) for name in names):
            return [f"its tensors' names begin with {prefix} {whose}"]
    for end, whose in _QUANTIZED.items():
        if any(name.endswith(end) for name in names):
            return [
                f"its tensors' names end with {end}, as {whose} do, which are not "
                "read; use the model that it was quantized from, or MLX's quantized "
                "edition of it: mlx_lm.convert --hf-path <that model> -q"
            ]
    if _MISTRAL_NAME in names:
        return [
            "its tensors have Mistral's own names; use this model's edition for "
            "transformers, whose weights are in model.safetensors"
        ]
    return []


def listed(names: Collection[str]) -> str:
    """Name the first few of some files."""
    shown = ", ".join(sorted(names)[:3])
    return shown + (" and others" if len(names) > 3 else "")
