"""Several seeds of one setting that learn in one process, every computation made for all of them at once."""
