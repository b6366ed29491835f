"""Environments side by side: in this process or in workers with shared memory. Loads no torch."""
