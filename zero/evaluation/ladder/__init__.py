"""`zero elo`: ratings of the champions of a lineage and of fixed opponents, with intervals.

| module | content |
|---|---|
| `elo` | the rating model, and the information of a game |
| `results` | the players and the results: gating matches of the record, and finished matches |
| `table` | the ladder: ratings, the curve over the generations, compute spent |
| `scheduling` | match scheduling: plays the most informative match next |
| `output` | console tables, the plot, files, a run in MLflow |

The ladder is not part of the record. It is computed from the ledger, the notes of costs and the folders of matches.
"""
