"""The Go Text Protocol, version 2: any player of ours as an engine for Sabaki, Lizzie, GoGui or a script.

| module | what it holds |
|---|---|
| `protocol` | lines to commands, answers to lines |
| `arguments` | colours, points and numbers of a command |
| `moves` | moves in any order of colours as a game in turn |
| `board` | one position with its game, for people |
| `game` | the game as the controller tells it |
| `minds` | who thinks: a search with a network, or any opponent |
| `clock` | time settings as seconds for a move |
| `handicap` | where the stones of a handicap stand |
| `setup` | SGF files with handicap, set-up stones and moves out of turn |
| `analysis` | what a search found, as Leela Zero and KataGo say it |
| `thinking` | a search that tells what it finds while it goes on |
| `engine` | the commands |
| `serve` | the loop |

Source: Gunnar Farneback, Specification of the Go Text Protocol, version 2, draft 2 (2002),
https://www.lysator.liu.se/~gunnar/gtp/; KataGo's docs/GTP_Extensions.md for the analysis.
"""
