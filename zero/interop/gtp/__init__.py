"""The Go Text Protocol (GTP), version 2: any player as an engine for Sabaki, Lizzie, GoGui, twogtp or a script.

| module | purpose |
|---|---|
| `protocol` | reads lines, parses commands and their arguments, formats answers |
| `game` | the game of the controller: moves in any order of colours, komi, score |
| `setup` | handicap stones and SGF files |
| `clock` | time settings and the seconds for a move |
| `analysis` | searches that report while they run, in the format of Leela Zero |
| `engine` | the commands and the loop |

Source: Gunnar Farneback, Specification of the Go Text Protocol, version 2, draft 2 (2002),
https://www.lysator.liu.se/~gunnar/gtp/; the README of Leela Zero for the analysis.
"""
