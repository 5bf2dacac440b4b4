"""The two formats of named arrays by name, each imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ster.documents.formats import NPZ
from ster.documents.tensors.parts import Bytes, Opener, Part, PartStream


def stream_parts(
    form: str,
    sink: Callable[[Bytes], None],
    parts: Sequence[Part],
    metadata: Mapping[str, str],
    label: str,
) -> PartStream:
    """Make what writes a file in one pass, without going back.

    Args:
        form: ``safetensors`` or ``npz``.
        sink: Takes the bytes.
        parts: All arrays, in the order in which their values will come.
        metadata: Texts by name.
        label: The file, for what is said when a text is no Unicode.

    Raises:
        OutputError: A text is no Unicode.
    """
    if form == NPZ:
        from ster.documents.tensors.npz import NpzStream

        return NpzStream(sink, metadata, label)
    from ster.documents.tensors.safetensors import SafetensorsStream

    return SafetensorsStream(sink, parts, metadata, label)


def opener_of(form: str) -> Opener:
    """Return what opens a file of this format."""
    if form == NPZ:
        from ster.documents.tensors.npz import open_npz

        return open_npz
    from ster.documents.tensors.safetensors import open_safetensors

    return open_safetensors
