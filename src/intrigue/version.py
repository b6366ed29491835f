"""The package's version, kept here so that reading it loads nothing else."""

__version__ = "0.1.0"
