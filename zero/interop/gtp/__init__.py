"""The Go Text Protocol (GTP), version 2: any player as an engine for Sabaki, Lizzie, GoGui, twogtp or a script.

| module | purpose |
|---|---|
| `protocol` | parses lines into commands and formats answers |
| `arguments` | parses colours, points, numbers and time settings |
| `game` | the game of the controller: moves in any order of colours, komi, score |
| `setup` | handicap stones and SGF files |
| `clock` | time settings and the seconds for a move |
| `analysis` | searches that report while they run, in the formats of Leela Zero and KataGo |
| `engine` | the commands |
| `serve` | the loop |

Source: Gunnar Farneback, Specification of the Go Text Protocol, version 2, draft 2 (2002),
https://www.lysator.liu.se/~gunnar/gtp/; KataGo's docs/GTP_Extensions.md for the analysis.
"""
