"""Learning from replay: what was seen, kept once, and drawn from again.

plan      what an agent asks of its replay                      (knows no torch)
rows      the ring of rows: every frame once, linked into episodes
keep      rows as steps of N environments, and as chunks a checkpoint can store
draws     which transitions: uniformly, by episodes, by priority
windows   n steps from each, as a batch
memory    the replay an agent is given: all of the above
collect   steps the environments and fills it
recording one finished episode as plain arrays
refill    exported episodes back into memory and into a replay
export…   the episodes of a run, as ExORL's files or a Minari dataset
"""
