"""`python -m benchmarks` (or `make bench`): the speed of each part, next to what it is compared with.

A row of the table (`rows`) is a function in one of these modules. `harness` runs the work in child processes on fixed
cores and alternates the two sides of a ratio. Benchmarks only count and measure time; tests check the results.

Other tools: `recipes` (variants of training on one window), `seeds` (repeatability over seeds), `sleeping_workers`.
"""
