"""From a configuration to training: building the parts, and the loops that drive them."""
