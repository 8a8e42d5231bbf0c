"""`python -m benchmarks` (or `make bench`): the speed of each part, next to what it is compared with.

`rows.yaml` lists the work, `harness` measures it, `results` shows and stores it. `search`, `selfplay`, `training`,
`leela_zero` and `pgx` do it. Benchmarks only count and measure time; tests check the results.

Other tools: `seeds` (repeatability over seeds), `feeding` (the search beside a fast device), `workers` (a cluster).
"""
