"""A game in the terminal against any player of ours, or between two people with a player to ask.

`drawing` shows boards and thoughts, `session` plays the game. Boards and minds are those of `zero.interop.gtp`.
"""
