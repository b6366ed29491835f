"""Metrics of a run: CSV files, the console, and trackers."""
