"""Tables and pictures of the paper's Atari studies."""
