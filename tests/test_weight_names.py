"""Which files hold weights."""

from __future__ import annotations

from ster.checkpoint.shards import parse_index, plain_weights


def test_plain_weights_are_sorted_and_leave_out_what_is_told():
    listed = ["b.safetensors", "a.safetensors", "training_args.safetensors", "a.bin"]
    assert plain_weights(listed, "training_args") == ("a.safetensors", "b.safetensors")


def test_an_index_maps_tensors_to_shards():
    data = b'{"metadata": {"total_size": 1}, "weight_map": {"a": "1.safetensors"}}'
    assert parse_index(data) == {"a": "1.safetensors"}
