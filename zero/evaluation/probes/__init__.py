"""`zero yardsticks`: what a generation's networks and games are like, for seconds and without a game more.

The champion and the challenger are asked for moves and outcomes of games that were played anyway: those of their own
generation, of later ones (which they cannot have learnt from: computed as soon as those exist), and GNU Go's. Beside it
stands the shape of the generation's own games. A match says who is stronger; these say why, and when learning stops.

| module | |
|---|---|
| `shape` | games in numbers |
| `judge` | a network against games |
| `gnugo` | GNU Go's games |
| `data` | games from DVC's cache |
| `table` | what is kept |
| `filling` | computes what is missing |
| `screen`, `picture`, `notebook` | for a person, and for MLflow |
"""

AHEAD = (1, 5)
"""How many generations later the games are that a network is held against."""
OWN, GNUGO = "own", "gnugo"


def later(ahead: int) -> str:
    """Name of the games so many generations later."""
    return f"later-{ahead}"


ALL_GAMES = (OWN, *(later(ahead) for ahead in AHEAD), GNUGO)
"""Names of the games that a network is held against."""
