"""Tables and pictures of the Unsupervised RL Benchmark."""
