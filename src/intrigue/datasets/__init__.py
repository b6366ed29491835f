"""Episodes on disk: export from a replay buffer, ExORL and Minari files, prefilling a replay from them."""
