"""Studies: tables and figures of the paper, and our own, as runnable plans with a verdict."""
