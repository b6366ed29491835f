"""Speed on this machine, each figure with its ceiling beside it. One module per target of `intrigue bench`."""
