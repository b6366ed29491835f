"""Environments stepped together, in this process or in workers with shared memory. Loads no torch."""
