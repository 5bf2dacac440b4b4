"""Which chat template a checkpoint publishes: in a file, or in its tokenizer config."""

from __future__ import annotations

from pathlib import Path

from ster.checkpoint.tokenizer_config import LightFiles, TokenizerConfig
from ster.errors import TemplateError


def find_template(files: LightFiles, config: TokenizerConfig) -> str | None:
    """Return the template's source; None where there is none.

    Raises:
        TemplateError: It cannot be read or chosen.
    """
    file = files.find("chat_template.jinja")
    if file is not None:
        return _read_text(file)
    try:
        return choose_template(config.fields.get("chat_template"))
    except TemplateError as error:
        raise TemplateError(
            error.sentence, path=config.path, field="chat_template"
        ) from None


def choose_template(published: object) -> str | None:
    """Choose among what ``chat_template`` holds; None when it holds nothing.

    Raises:
        TemplateError: It holds no template, or several and no default.
    """
    if published is None or isinstance(published, str):
        return published
    if isinstance(published, dict):
        named = [{"name": n, "template": published[n]} for n in published]
        return choose_template(named)
    if not isinstance(published, list):
        raise TemplateError(
            "this model's chat_template is neither a template nor a list of them"
        )
    templates = [_named_template(entry) for entry in published]
    # transformers makes a dict of the list, so the last of a name counts.
    defaults = [source for name, source in templates if name == "default"]
    if defaults:
        return defaults[-1]
    if len(templates) > 1:
        raise TemplateError(
            "this model publishes several named chat templates "
            "and none of them is the default"
        )
    return templates[0][1] if templates else None


def _named_template(entry: object) -> tuple[object, str]:
    source = entry.get("template") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(source, str):
        raise TemplateError(
            "this model's chat template list has an entry with no template"
        )
    return entry.get("name"), source


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"failed to read {path}", error, path=path) from error
