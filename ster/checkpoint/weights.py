"""Safetensors shards -> mapped tensors.

Files are mapped, never read whole: a tensor's bytes come off the disk when a decoder
takes them, and ``release`` lets them go again. Everything about the files that can be
wrong is found here, from the headers, before any compute.
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture.modules import Shapes
from ster.architecture.spec import Naming
from ster.checkpoint.lookalikes import explain_tensors
from ster.checkpoint.weight_file import WeightFile
from ster.errors import WeightsError

# numpy has no bfloat16: such values are held as their 16 bits.
STORED_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# Heads stand beside the model and not in it, so they lack its prefix.
BESIDE = ("lm_head.weight", "embed_out.weight")
# Values converted at a time: what is read for them stays in a core's cache.
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor as it lies in its file.

    Args:
        data: A view of the mapped file; bfloat16 as its 16 bits.
        dtype: F32, F16 or BF16.
        file: The file that it lies in.
        start: Where ``data`` begins in the file, in bytes.
    """

    data: NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint16]
    dtype: str
    file: WeightFile
    start: int

    def as_float32(self) -> NDArray[np.float32]:
        """Return the values as f32: the mapped view itself, or an exact conversion.

        Raises:
            WeightsError: The file changed before its values were converted. A view
                shows later changes too: call ``check_unchanged`` after using it.
        """
        # An odd header may leave a tensor unaligned, which no BLAS takes.
        if self.dtype == "F32" and self.data.flags.aligned:
            return self.data.view(np.float32)
        values = np.empty(self.data.shape, np.float32)
        if not self.data.flags.c_contiguous:
            self.check_unchanged()
            _widen(self.data, values)
            return values
        flat, width = values.reshape(-1), self.data.itemsize
        for at in range(0, flat.size, _PIECE):
            piece = flat[at : at + _PIECE]
            stored = self.file.read(self.start + at * width, piece.size * width)
            _widen(np.frombuffer(stored, self.data.dtype), piece)
        return values

    def read(self) -> NDArray[Any]:
        """Copy the values out as they are stored; ``data`` has to be contiguous.

        Unlike ``data`` itself, this cannot end the process where the file was cut.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        stored = self.file.read(self.start, self.data.nbytes)
        return np.frombuffer(stored, self.data.dtype).reshape(self.data.shape)

    def check_unchanged(self) -> None:
        """Refuse a file that was written to or cut since it was opened.

        Raises:
            WeightsError: It has changed; it is named.
        """
        self.file.check_unchanged()

    def part(self, start: int, stop: int) -> StoredTensor:
        """Return some rows; nothing is copied."""
        before = self.data[:start].nbytes
        return self._seen(self.data[start:stop], self.start + before)

    def transposed(self) -> StoredTensor:
        """Return it with its last two axes exchanged; nothing is copied."""
        return self._seen(self.data.swapaxes(-1, -2), self.start)

    def rows_as_float32(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Copy some rows out as f32.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        first, count = int(rows[0]), len(rows)
        in_a_row = int(rows[-1]) == first + count - 1 and (np.diff(rows) == 1).all()
        if not (in_a_row and self.data.flags.c_contiguous):
            return self.take(rows)
        part = self.part(first, first + count)
        # Copied past the mapping, which a file that is cut takes with it.
        stored: NDArray[np.float32]
        stored = part.read() if self.dtype == "F32" else part.as_float32()
        return stored

    def _seen(self, data: Any, start: int) -> StoredTensor:  # noqa: ANN401
        return StoredTensor(data=data, dtype=self.dtype, file=self.file, start=start)

    def take(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Gather some rows as f32; only their pages are touched.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        self.check_unchanged()
        stored = self.data[rows]
        self.check_unchanged()
        values = np.empty(stored.shape, np.float32)
        _widen(stored, values)
        return values

    def prefetch(self) -> None:
        """Have the system read the tensor's pages in the background."""
        self._advise("MADV_WILLNEED")

    def release(self) -> None:
        """Let the system take the tensor's pages back; reading maps them in again."""
        self._advise("MADV_DONTNEED")

    def _advise(self, advice: str) -> None:
        # Whole pages inside the tensor: its neighbours may be in use.
        page = mmap.PAGESIZE
        first = -(-self.start // page) * page
        size = (self.start + self.data.nbytes) // page * page - first
        if size > 0 and hasattr(mmap, advice):
            self.file.mapped.madvise(getattr(mmap, advice), first, size)


def _widen(stored: NDArray[Any], values: NDArray[np.float32]) -> None:
    """Convert to f32; 16 bits without a type are bfloat16, an f32's upper half."""
    if stored.dtype == np.uint16:
        bits = values.view(np.uint32)
        bits[...] = stored
        bits <<= 16
    else:
        values[...] = stored


def open_weights(
    files: Sequence[Path], shapes: Shapes, naming: Naming | None = None
) -> dict[str, StoredTensor]:
    """Map the files and find every tensor that a run needs.

    Args:
        files: The shards that hold them.
        shapes: Names without what stands in front of them, and shapes.
        naming: What may stand there; a Llama's names where it is not given.

    Returns:
        The tensors by the names in ``shapes``.

    Raises:
        WeightsError: A file is damaged; a tensor is missing, has another shape or type,
            or is there though the config gives it no place. The error names it.
    """
    try:
        entries = _read_headers(files)
        named = naming or Naming()
        prefix = next(
            each for each in (*named.prefixes, "") if _any_begins(entries, each)
        )
        _refuse_unexpected(entries, shapes, named, prefix)
        return {
            name: _find(entries, stored_name(name, prefix, entries), shape)
            for name, shape in shapes.items()
        }
    except WeightsError as error:
        count = f"failed to map {len(files)} model weight files"
        raise WeightsError(count, error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A tensor as a file's header declares it; ``start`` is counted in the file."""

    file: WeightFile
    start: int
    dtype: str
    shape: tuple[int, ...]


def _read_headers(files: Sequence[Path]) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for path in files:
        for name, entry in _read_header(path).items():
            if name in entries:
                raise WeightsError(
                    f"{path.name} repeats the tensor {name}", path=path, field=name
                )
            entries[name] = entry
    return entries


def _read_header(path: Path) -> dict[str, _Entry]:
    file = WeightFile.open(path)
    data, places = file.read_header()
    return {
        name: _Entry(
            file=file, start=data + place.start, dtype=place.dtype, shape=place.shape
        )
        for name, place in places.items()
    }


def _refuse_unexpected(
    entries: Mapping[str, _Entry], shapes: Shapes, naming: Naming, prefix: str
) -> None:
    """Refuse tensors of the run's blocks that the config does not ask for.

    Dropping a bias, a scale or an adapter in silence would change the numbers.
    """
    blocks = {block for name in shapes if (block := _block_of(name))}
    for name in entries:
        bare = name.removeprefix(prefix)
        expected = bare in shapes or bare.endswith(naming.ignored)
        if _block_of(bare) in blocks and not expected:
            raise WeightsError(
                f"the tensor {name} is in the checkpoint, but config.json gives it "
                "no place",
                field=name,
            )


def stored_name(name: str, prefix: str, stored: Collection[str]) -> str:
    """Tell how a file names a tensor; a wrapper's head has the wrapper's name alone."""
    if name not in BESIDE:
        return prefix + name
    outer = prefix.removesuffix("model.") + name
    return outer if outer in stored else name


def _any_begins(names: Collection[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names) or not prefix


def _block_of(name: str) -> str | None:
    """Return what a block's tensors begin with, such as ``layers.3.``."""
    found = re.match(r"[^.]+\.\d+\.", name)
    return found[0] if found else None


def _find(
    entries: Mapping[str, _Entry], name: str, shape: tuple[int, ...]
) -> StoredTensor:
    entry = entries.get(name)
    if entry is None:
        raise WeightsError(
            f"the tensor {name} is missing", *explain_tensors(entries), field=name
        )
    if entry.shape != shape:
        raise WeightsError(
            f"the tensor {name} has shape {list(entry.shape)}, expected {list(shape)}",
            path=entry.file.path,
            field=name,
            found=entry.shape,
            expected=shape,
        )
    if entry.dtype not in STORED_TYPES:
        known = ", ".join(STORED_TYPES)
        raise WeightsError(
            f"the tensor {name} is stored as {entry.dtype}; Ster reads {known}",
            path=entry.file.path,
            field=name,
            found=entry.dtype,
            expected=tuple(STORED_TYPES),
        )
    data = np.frombuffer(
        entry.file.mapped,
        STORED_TYPES[entry.dtype],
        count=math.prod(shape),
        offset=entry.start,
    )
    return StoredTensor(
        data=data.reshape(shape), dtype=entry.dtype, file=entry.file, start=entry.start
    )
