"""The evidence queue: what is wanted for the tables, what is there, and the next batch for a lent GPU."""
