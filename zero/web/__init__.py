"""The local web page: play, recorded games, lineages with their reports, and ratings."""
