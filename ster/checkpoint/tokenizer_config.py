"""tokenizer_config.json: the template and the special tokens that it declares.

Read as transformers reads it, with Python's own json: the last of a repeated key
counts, and numbers such as Infinity are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ster.errors import TokenizerError

# Flags of an added token, as tokenizers names them.
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# These are added before other named ones.
_FIRST_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

Token = dict[str, object]


class LightFiles(Protocol):
    """The one thing that tokenizer and template ask of a checkpoint's files."""

    def find(self, name: str) -> Path | None:
        """Return the path of a file of the checkpoint, or None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """What a checkpoint says about its tokenizer.

    Args:
        path: Where tokenizer_config.json is, or None.
        fields: What stands in it.
        legacy: What stands in special_tokens_map.json.
    """

    path: Path | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    legacy: Mapping[str, object] = field(default_factory=dict)

    def special_tokens(self) -> dict[str, str | None]:
        """Collect the tokens that are declared by name; None is declared as null."""
        tokens = named_tokens(self.fields)
        for name, text in named_tokens(self.legacy).items():
            if tokens.get(name) is None:
                tokens[name] = text
        return tokens

    def declared_tokens(self) -> list[Token]:
        """List what is to be one token each, in the order transformers adds them.

        Raises:
            TokenizerError: A declaration has another form.
        """
        tokens = self._numbered_tokens()
        known = {token["content"] for token in tokens}
        for token in [*self._named_tokens(), *self._extra_tokens()]:
            if token["content"] not in known:
                known.add(token["content"])
                tokens.append(token)
        return tokens

    def _numbered_tokens(self) -> list[Token]:
        declared = self.fields.get("added_tokens_decoder")
        if declared is None:
            return []
        if not isinstance(declared, dict):
            raise self._refusal("added_tokens_decoder", "an object")
        numbered: list[tuple[int, Token]] = []
        for number, token in declared.items():
            is_token = isinstance(token, dict) and _token_text(token) is not None
            if not is_token or not number.isdecimal():
                raise self._refusal("added_tokens_decoder", "an object of tokens")
            numbered.append((int(number), _added_token(token)))
        return [token for _, token in sorted(numbered, key=lambda each: each[0])]

    def _named_tokens(self) -> list[Token]:
        # Where tokens are numbered, transformers ignores special_tokens_map.json.
        files = [self.fields]
        if "added_tokens_decoder" not in self.fields:
            files.append(self.legacy)
        declared: dict[str, object] = {}
        for fields in files:
            for name, token in _declared(fields).items():
                if declared.get(name) is None:
                    declared[name] = token
        names = [*(n for n in _FIRST_NAMES if n in declared), *declared]
        return [_special(declared[n]) for n in names if _token_text(declared[n])]

    def _extra_tokens(self) -> list[Token]:
        sources = [self.fields]
        if "added_tokens_decoder" not in self.fields:
            sources.append(self.legacy)
        tokens: list[Token] = []
        for fields in sources:
            # The newer name wins.
            names = ("extra_special_tokens", "additional_special_tokens")
            name = names[0] if fields.get(names[0]) else names[1]
            declared = fields.get(name) or []
            if isinstance(declared, dict):
                continue  # named tokens, which _named_tokens lists
            if not isinstance(declared, list) or None in map(_token_text, declared):
                raise self._refusal(name, "a list of tokens")
            tokens += map(_special, declared)
        return tokens

    def _refusal(self, name: str, expected: str) -> TokenizerError:
        return TokenizerError(
            f"invalid tokenizer config {self.path}",
            f"`{name}` is not {expected}",
            path=self.path,
            field=name,
            expected=expected,
        )


def read_tokenizer_config(files: LightFiles) -> TokenizerConfig:
    """Read tokenizer_config.json and special_tokens_map.json, either may be missing.

    Raises:
        TokenizerError: One cannot be read or is no JSON object.
    """
    path = files.find("tokenizer_config.json")
    legacy = _read(files.find("special_tokens_map.json"))
    return TokenizerConfig(path=path, fields=_read(path), legacy=legacy)


def named_tokens(fields: Mapping[str, object]) -> dict[str, str | None]:
    """Collect the tokens that one file declares by name, null among them."""
    return {
        name: _token_text(token)
        for name, token in _declared(fields).items()
        if token is None or _token_text(token) is not None
    }


def _declared(fields: Mapping[str, object]) -> dict[str, object]:
    extra = fields.get("extra_special_tokens")
    declared = {n: token for n, token in fields.items() if n.endswith("_token")}
    return declared | extra if isinstance(extra, dict) else declared


def _special(token: object) -> Token:
    return {**_added_token(token), "special": True}


def _added_token(token: object) -> Token:
    """Take from a token, an object or a text, what the tokenizer has to know."""
    fields = token if isinstance(token, dict) else {}
    flags = {flag: fields[flag] is True for flag in _FLAGS if flag in fields}
    return {"content": _token_text(token), **flags}


def _token_text(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _read(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        fields = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise TokenizerError(f"failed to read {path}", error, path=path) from error
    except UnicodeDecodeError as error:
        cause = f"invalid UTF-8 at byte {error.start}"
        raise _invalid(path, cause) from error
    except ValueError as error:
        raise _invalid(path, str(error)) from error
    except RecursionError as error:
        raise _invalid(path, "it is nested too deeply") from error
    if not isinstance(fields, dict):
        raise _invalid(path, "expected an object")
    return fields


def _invalid(path: Path, cause: str) -> TokenizerError:
    return TokenizerError(f"invalid tokenizer config {path}", cause, path=path)
