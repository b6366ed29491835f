"""What bonuses and agents are made of: networks, dynamics models, normalisers, memories of neighbours and counts."""
