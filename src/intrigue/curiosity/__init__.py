"""A bonus for a loop: prepare, score, learn, observe and mix, in the only order there is."""
