"""Self-play with a network, and the same network alone at the same batch: what the search leaves of it."""
