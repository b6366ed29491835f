"""Experience replay.

plan           what an agent asks of its replay; does not import torch
recording      one finished episode as plain arrays
ring           the ring of rows: every frame once, linked into episodes
step_store     the ring indexed by (step, environment), and cut into chunks for checkpoints
sampling       which transitions are drawn: uniformly, by episodes or by priority
windows        n steps from each drawn transition, as a batch
buffer         the replay buffer of an agent: all of the above
host_staging   batches steps on the host before they are copied to the device
prefill        recorded episodes into the buffer of a new run
"""
