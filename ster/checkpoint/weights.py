"""Safetensors shards -> the tensors that a run reads.

Everything about the files that can be wrong is found here, from their headers, before
any compute. Bytes come off the disk when a decoder takes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ster.architecture.modules import Matrix, Module
from ster.architecture.quantization import Format, Quantization
from ster.architecture.spec import Naming, Placed
from ster.checkpoint.lookalikes import explain_tensors
from ster.checkpoint.stored import (
    STORED_TYPES,
    QuantizedTensor,
    Stored,
    StoredTensor,
)
from ster.checkpoint.weight_file import WeightFile
from ster.errors import WeightsError

# Heads stand beside the model and not in it, so they lack its prefix.
BESIDE = ("lm_head.", "embed_out.")
# What follows the weight's name in that of its scales, in fp8.
FP8_SCALES = "_scale_inv"
# Types that only quantized matrices have.
PACKED_TYPES = ("U32", "U8", "F8_E4M3")
UNDECLARED = (
    "these are the packed values of a quantized matrix, and config.json does not say "
    "how it is quantized"
)

Shape = tuple[int, ...]


def open_weights(
    files: Sequence[Path],
    modules: Iterable[Placed],
    naming: Naming | None = None,
    quantization: Quantization | None = None,
) -> dict[str, Stored]:
    """Open the files and find every tensor that a run needs.

    Args:
        files: The shards that hold them.
        modules: What the run is made of.
        naming: What may stand before names; a Llama's where it is not given.
        quantization: How matrices may be quantized.

    Returns:
        The tensors by the names of their places in the spec; a quantized weight with
        its scales is one.

    Raises:
        WeightsError: A file is damaged; a tensor is missing, has another shape or type,
            or is there though the config gives it no place. The error names it.
    """
    try:
        finder = _Finder.open(files, naming or Naming(), quantization)
        for prefix, module in modules:
            finder.find(prefix, module)
        finder.refuse_unexpected()
        return finder.found
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


@dataclass(slots=True, kw_only=True)
class _Finder:
    """Finds modules in the headers of a checkpoint's files.

    Args:
        entries: All tensors that the files declare.
        naming: How the family names them.
        prefix: What stands before their names.
        quantization: How matrices may be quantized.
        found: The tensors of the modules that were asked for.
        taken: The files' names of their tensors.
    """

    entries: Mapping[str, _Entry]
    naming: Naming
    prefix: str
    quantization: Quantization | None
    found: dict[str, Stored]
    taken: set[str]

    @classmethod
    def open(
        cls, files: Sequence[Path], naming: Naming, quantization: Quantization | None
    ) -> _Finder:
        entries = _read_headers(files)
        prefix = next(
            each for each in (*naming.prefixes, "") if _any_begins(entries, each)
        )
        return cls(
            entries=entries,
            naming=naming,
            prefix=prefix,
            quantization=quantization,
            found={},
            taken=set(),
        )

    def find(self, block: str, module: Module) -> None:
        """Find a module in one of the places where files have it."""
        place = next(
            (
                each
                for each in module.places
                if self._stored(block + next(iter(each.shapes))) in self.entries
            ),
            module,
        )
        for name, shape in place.shapes.items():
            if block + name in self.found:
                continue
            packing = None
            if isinstance(place, Matrix) and name == place.weight_name:
                packing = self._packing(block, place)
                self._refuse_packed(block, place, packing)
            self.found[block + name] = (
                self._find(block + name, shape)
                if packing is None or not isinstance(place, Matrix)
                else self._quantized(block, place, packing)
            )

    def _packing(self, block: str, place: Matrix) -> Format | None:
        """Tell how a matrix is quantized, by its scales and by config.json."""
        declared, weight = self.quantization, self._stored(block + place.weight_name)
        path = weight.removesuffix(place.suffixes.weight)
        scales = self._stored(block + _scales_name(place, declared))
        if declared is None or (
            path not in declared.overrides and scales not in self.entries
        ):
            return None
        return declared.of(path)

    def _refuse_packed(self, block: str, place: Matrix, packing: Format | None) -> None:
        """Refuse packed values that are not to be unpacked, and say why not."""
        name = self._stored(block + place.weight_name)
        entry = self.entries.get(name)
        if packing is not None or entry is None or entry.dtype not in PACKED_TYPES:
            return
        why, declared = UNDECLARED, self.quantization
        if declared is not None:
            path = name.removesuffix(place.suffixes.weight)
            scales = self._stored(block + _scales_name(place, declared))
            why = f"the tensor {scales}, which belongs to it, is missing"
            if path in declared.overrides:
                why = "config.json says that it is not quantized"
        raise _wrong_type(name, entry, STORED_TYPES, why)

    def _quantized(self, block: str, place: Matrix, packing: Format) -> QuantizedTensor:
        """Find the tensors of a quantized matrix, or a stack of them."""
        stack = () if place.stack is None else (place.stack[1],)
        outputs = place.outputs if place.part is None else place.part.outputs
        scales = block + _scales_name(place, self.quantization)
        weight = block + place.weight_name
        if packing.mode == "fp8":
            blocks = (
                -(-outputs // packing.block_rows),
                -(-place.inputs // packing.group_size),
            )
            return QuantizedTensor(
                words=self._find(weight, (*stack, outputs, place.inputs), ("F8_E4M3",)),
                scales=self._find(scales, (*stack, *blocks)),
                biases=None,
                format=packing,
            )
        self._check_groups(weight, place, packing)
        groups = (*stack, outputs, place.inputs // packing.group_size)
        words = (*stack, outputs, place.inputs * packing.bits // 32)
        if place.suffixes.weight == ".weight":
            held = self._find(weight, words, ("U32",))
        else:  # as bytes, group by group
            as_bytes = (*groups, packing.group_size * packing.bits // 8)
            held = self._find(weight, as_bytes, ("U8",)).viewed("U32", words)
        is_affine = packing.mode == "affine"
        return QuantizedTensor(
            words=held,
            scales=self._find(scales, groups, STORED_TYPES if is_affine else ("U8",)),
            biases=self._find(f"{block}{place.name}.biases", groups)
            if is_affine
            else None,
            format=packing,
        )

    def _check_groups(self, weight: str, place: Matrix, packing: Format) -> None:
        if place.inputs % packing.group_size:
            raise WeightsError(
                f"the tensor {self._stored(weight)} has {place.inputs} inputs, which "
                f"are no whole groups of {packing.group_size}",
                field=self._stored(weight),
                found=place.inputs,
                expected=packing.group_size,
            )

    def refuse_unexpected(self) -> None:
        """Refuse tensors of the run's blocks that the config does not ask for.

        Dropping a bias, a scale or an adapter in silence would change the numbers.
        """
        blocks = {block for name in self.found if (block := _block_of(name))}
        for name in self.entries:
            bare = self.naming.without_prefix(self.prefix, name)
            expected = name in self.taken or bare.endswith(self.naming.ignored)
            if _block_of(bare) in blocks and not expected:
                raise WeightsError(
                    f"the tensor {name} is in the checkpoint, but config.json gives it "
                    "no place",
                    field=name,
                )

    def _stored(self, name: str) -> str:
        named = self.naming.with_prefix(self.prefix, name)
        if not name.startswith(BESIDE) or named in self.entries:
            return named
        # A wrapper's head has the wrapper's name alone.
        outer = self.prefix.removesuffix("model.") + name
        return outer if outer in self.entries else name

    def _find(
        self, name: str, shape: Shape, types: Sequence[str] = STORED_TYPES
    ) -> StoredTensor:
        name = self._stored(name)
        entry = self.entries.get(name)
        if entry is None:
            raise WeightsError(
                f"the tensor {name} is missing",
                *explain_tensors(self.entries),
                field=name,
            )
        _check_entry(name, entry, shape, types)
        self.taken.add(name)
        return StoredTensor(
            file=entry.file, start=entry.start, dtype=entry.dtype, shape=shape
        )


def _check_entry(name: str, entry: _Entry, shape: Shape, types: Sequence[str]) -> None:
    if entry.shape != shape:
        raise WeightsError(
            f"the tensor {name} has shape {list(entry.shape)}, expected {list(shape)}",
            path=entry.file.path,
            field=name,
            found=entry.shape,
            expected=shape,
        )
    if entry.dtype not in types:
        raise _wrong_type(name, entry, types)


def _wrong_type(
    name: str, entry: _Entry, types: Sequence[str], *causes: str
) -> WeightsError:
    return WeightsError(
        f"the tensor {name} is stored as {entry.dtype}; Ster reads {', '.join(types)}",
        *causes,
        path=entry.file.path,
        field=name,
        found=entry.dtype,
        expected=tuple(types),
    )


def _scales_name(place: Matrix, quantization: Quantization | None) -> str:
    default = None if quantization is None else quantization.default
    if default is not None and default.mode == "fp8":
        return place.weight_name + FP8_SCALES
    return place.scales_name


def _any_begins(names: Collection[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names) or not prefix


def _block_of(name: str) -> str | None:
    """Return what a block's tensors begin with, such as ``layers.3.``."""
    found = re.match(r"[^.]+\.\d+\.", name)
    return found[0] if found else None
