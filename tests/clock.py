"""A clock for what is measured in seconds: time passes only by looking."""


class Clock:
    """Goes on by a second each time it is looked at; stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now
