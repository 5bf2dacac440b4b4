"""Writing pairs: JSON, JSON lines or a table, as the suffix says."""

from __future__ import annotations

import csv
import io
import os

from ster.documents.formats import JSON, output_format
from ster.documents.pair_sets.pair import FIELDS
from ster.documents.pairs import PairSet
from ster.documents.strict_json import dump_json
from ster.documents.whole_files import AtomicFile
from ster.errors import name_path

_DELIMITERS = {"csv": ",", "tsv": "\t"}
FORMATS = (JSON, "jsonl", *_DELIMITERS)


def write_pairs(pairs: PairSet, path: str | os.PathLike[str]) -> None:
    """Write pairs beside their place, then put them there.

    Raises:
        OutputError: The suffix is none of these, or the file cannot be written.
    """
    form = output_format(path, FORMATS)
    label = name_path(path)
    with AtomicFile(path) as file:
        if form == JSON:
            # Without a name a set is named after its file.
            name = {"trait_name": pairs.trait_name} if pairs.trait_name else {}
            document = {**name, "pairs": [pair.document for pair in pairs]}
            file.write(dump_json(document, label))
        elif form == "jsonl":
            for pair in pairs:
                file.write(dump_json(pair.document, label) + b"\n")
        else:
            file.write(_to_table(pairs, _DELIMITERS[form]).encode("utf-8"))


def _to_table(pairs: PairSet, delimiter: str) -> str:
    documents = [pair.document for pair in pairs]
    names = [name for name in FIELDS if any(name in each for each in documents)]
    text = io.StringIO()
    # Within a field a carriage return ends the line too, unless it is quoted.
    has_return = any("\r" in value for each in documents for value in each.values())
    writer = csv.DictWriter(
        text,
        names,
        delimiter=delimiter,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL,
    )
    writer.writeheader()
    writer.writerows(documents)
    return text.getvalue()
