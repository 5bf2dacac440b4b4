"""Programs that come with a checkpoint, each in a process that may do little."""
