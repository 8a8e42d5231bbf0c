"""The result of a generation in words: the same in the terminal, in Prefect, in MLflow and in logs."""

from zero.record.ledger import generation_tag
from zero.statistics import wilson_interval
from zero.storage.manifests import Colours, LedgerEntry, MatchResult, PromotionDecision


def decision_word(entry: LedgerEntry) -> str:
    """`promoted` or `refused`; without a decision the kind of the entry: `start`, `rollback`, `branch`."""
    if entry.decision is None:
        return entry.kind
    return "promoted" if entry.decision.promoted else "refused"


def entry_sentence(entry: LedgerEntry) -> str:
    """What a generation was: its decision, the source that it restores, or the first network."""
    if entry.source is not None:
        return f"{entry.kind} from {entry.source.tag}"
    return decision_sentence(entry.decision) if entry.decision else "the random network, no decision yet"


def entry_lines(entry: LedgerEntry) -> list[str]:
    """A ledger entry as one line, or two with the games of its match."""
    first = f"{generation_tag(entry.lineage, entry.generation)}: {entry_sentence(entry)}"
    return [first, match_sentence(entry.decision.match)] if entry.decision else [first]


def decision_sentence(decision: PromotionDecision, opponent: int | None = None) -> str:
    """The score of the challenger, the score that it needed, and the consequence; `opponent`: its generation."""
    against = "" if opponent is None else f" against generation {opponent}"
    verdict = "it is the new champion" if decision.promoted else "the champion stays"
    return (
        f"the challenger scored {score_text(decision.match)} in {decision.match.num_games} games{against}, "
        f"{decision.threshold:.0%} was needed; {verdict}"
    )


def score_text(match: MatchResult) -> str:
    """The score with its interval."""
    low, high = match_interval(match)
    return f"{match.score:.1%} (95 % interval {low:.1%} to {high:.1%})"


def match_interval(match: MatchResult) -> tuple[float, float]:
    """95 % interval of the score over the unique games: a repeated game says nothing new.

    `MatchResult.interval` of a gating match counts all games.
    """
    # A corrupt record may have numbers out of range; the audit reports them.
    return wilson_interval(min(max(match.score, 0.0), 1.0), max(match.unique_games, 1))


def match_sentence(match: MatchResult) -> str:
    """The games of a match, in total and by colour, from the challenger's side."""
    return (
        f"{match.wins} won, {match.losses} lost, {match.draws} drawn (as Black {_counts(match.as_black)}, as White "
        f"{_counts(match.as_white)}); {match.unique_games} unique games of {match.mean_length:.0f} moves on average"
    )


def _counts(games: Colours) -> str:
    return f"+{games.wins} -{games.losses} ={games.draws}"
