"""A model whose texts never end: ``endless MODEL DIRECTORY``.

The weights, the tokenizer and the template are links to the model's own; config.json
and generation_config.json are copies that name no end-of-text token. So every program
writes as many tokens as it is asked for, and none is quicker for having stopped early.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.quantizer import BESIDE
from ster.checkpoint.resolve import (
    GENERATION_CONFIG,
    INDEX,
    CheckpointFiles,
    open_files,
)

CONFIG = "config.json"


def main() -> None:
    """Make the checkpoint that the command line names."""
    model, directory = sys.argv[1:]
    make_checkpoint(model, Path(directory))


def make_checkpoint(model: str, directory: Path) -> None:
    """Make it afresh: the model may be another than last time."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    files = open_files(model, None)
    write_configs(files, directory)
    for path in files.all_weight_files():
        (directory / path.name).symlink_to(path.absolute())
    for name in (*BESIDE, INDEX):
        if name != GENERATION_CONFIG and (found := files.find(name)):
            (directory / name).symlink_to(found.absolute())


def write_configs(files: CheckpointFiles, directory: Path) -> None:
    """Copy both configs without the tokens that end a text."""
    configs = {CONFIG: files.require_config()}
    if found := files.find(GENERATION_CONFIG):
        configs[GENERATION_CONFIG] = found
    for name, path in configs.items():
        # Null and not left out: transformers has its own for what is left out.
        config = json.loads(path.read_bytes()) | {"eos_token_id": None}
        (directory / name).write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main()
