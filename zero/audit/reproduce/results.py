"""What a reproduction found: values that are printed, or kept beside an unfinished one."""

import math

from zero.storage.manifests import Manifest


class Compared(Manifest):
    """One thing that was computed again."""

    path: str
    then: str
    """Hash in the record; empty where the record has none."""
    now: str
    """Hash of what was computed; empty where nothing was."""
    first: str | None = None
    """Where it differs first, in words."""

    @property
    def equal(self) -> bool:
        """True where it came out the same."""
        return self.then == self.now and self.first is None


class StageResult(Manifest):
    """A stage that was computed again."""

    stage: str
    seconds: float
    outs: tuple[Compared, ...]

    @property
    def equal(self) -> bool:
        """True where all of it came out the same."""
        return all(out.equal for out in self.outs)


class Score(Manifest):
    """The challenger's score in a match."""

    score: float
    interval: tuple[float, float]
    """Of 95 %."""


class MatchComparison(Manifest):
    """Two matches of the challenger against the champion, where they are not the same games."""

    then: Score
    now: Score
    difference: float
    """Of the scores, now less then."""
    interval: tuple[float, float]
    """Of 95 %, of the difference."""

    @property
    def agrees(self) -> bool:
        """True where chance explains the difference."""
        return self.interval[0] <= 0.0 <= self.interval[1]


class Reproduction(Manifest):
    """A generation that was computed again."""

    tag: str
    commit: str
    kind: str
    """As in the ledger: start, decision, rollback, branch."""
    num_inputs: int
    """Files whose hashes were checked before."""
    profile_then: dict[str, str]
    profile_now: dict[str, str]
    stages: tuple[StageResult, ...]
    lock_equal: bool | None
    """Whether dvc.lock came out the same, byte for byte; None where it was not made again."""
    match: MatchComparison | None = None
    """Only where the match came out differently."""
    folder: str | None = None
    """Where everything is kept."""

    @property
    def equal(self) -> bool:
        """True where everything that was computed came out the same."""
        return all(stage.equal for stage in self.stages) and self.lock_equal is not False

    @property
    def other_profile(self) -> dict[str, tuple[str, str]]:
        """Where the profiles differ: then and now by name."""
        names = [*self.profile_then, *(name for name in self.profile_now if name not in self.profile_then)]
        pairs = {name: (self.profile_then.get(name, "-"), self.profile_now.get(name, "-")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def compare_scores(then: Score, now: Score) -> MatchComparison:
    """The difference of two independent scores, with an interval made of theirs (Newcombe 1998, method 10)."""
    difference = now.score - then.score
    below = math.hypot(now.score - now.interval[0], then.interval[1] - then.score)
    above = math.hypot(now.interval[1] - now.score, then.score - then.interval[0])
    interval = (max(-1.0, difference - below), min(1.0, difference + above))
    return MatchComparison(then=then, now=now, difference=difference, interval=interval)
