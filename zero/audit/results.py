"""Results of a reproduction, which are printed, or kept beside an unfinished one."""

from zero.storage.manifests import Manifest


class ComparedOutput(Manifest):
    """One recomputed output."""

    path: str
    then: str
    """Digest in the record; empty if the record has none."""
    now: str
    """Digest of the recomputed output; empty if there is none."""
    first: str | None = None
    """Description of the first difference."""

    @property
    def equal(self) -> bool:
        """True if it came out the same."""
        return self.then == self.now and self.first is None


class StageResult(Manifest):
    """A recomputed stage."""

    stage: str
    seconds: float
    outs: tuple[ComparedOutput, ...]

    @property
    def equal(self) -> bool:
        """True if all its outputs came out the same."""
        return all(out.equal for out in self.outs)


class Reproduction(Manifest):
    """A recomputed generation."""

    tag: str
    commit: str
    kind: str
    """Kind in the ledger: start, decision, rollback or branch."""
    profile_then: dict[str, str]
    profile_now: dict[str, str]
    stages: tuple[StageResult, ...]
    lock_equal: bool | None
    """True if dvc.lock came out the same, byte for byte; None if it was not written again."""
    folder: str | None = None
    """Folder in which everything is kept."""

    @property
    def equal(self) -> bool:
        """True if everything came out the same."""
        return all(stage.equal for stage in self.stages) and self.lock_equal is not False

    @property
    def other_profile(self) -> dict[str, tuple[str, str]]:
        """Differing entries of the profiles by name: then and now."""
        names = [*self.profile_then, *(name for name in self.profile_now if name not in self.profile_then)]
        pairs = {name: (self.profile_then.get(name, "-"), self.profile_now.get(name, "-")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
