"""Building blocks of bonuses and agents: networks, dynamics models, normalisers, neighbour search and memories."""
