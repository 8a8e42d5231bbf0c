"""`zero match`: a match of two players of any kind.

| module | content |
|---|---|
| `setup` | from two player specs to a finished match |
| `referee` | plays the games by the rules |
| `results` | the specification, the games, the count, and their folder |
| `output` | lines for the console, a run in MLflow |

Not for gating, whose match is a stage of the pipeline and part of the record.
"""
