"""A game in the terminal: a person against any player, or two people with a player that gives hints.

`drawing` draws boards and search results; `game` plays.
"""
