"""Named arrays in one file: safetensors and npz, written in a stream, read strictly."""
