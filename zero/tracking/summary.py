"""Runs over all generations of a lineage in MLflow, such as the ratings of its champions.

Their content changes over time. A run is identified by the digest of its content: equal content is written once, and a
new run replaces the older one.
"""

from collections.abc import Mapping, Sequence

from zero.storage.files import canonical_json, sha256_bytes
from zero.tracking import open_client
from zero.tracking.metrics import Point
from zero.tracking.pages import Page

DIGEST_TAG = "zero.shown"
"""Digest of the metrics and the JSON files. The bytes of plots depend on the version of the library."""


def track_summary(
    uri: str, lineage: str, stage: str, note: str, points: Sequence[Point], files: Mapping[str, bytes]
) -> str:
    """Writes a run over all generations in place of the older one; returns its address.

    Args:
      uri: address of the server.
      lineage: name of the lineage.
      stage: name of the run.
      note: description of the run.
      points: its metrics; step = generation.
      files: its files by name.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    key = {"zero.lineage": lineage, "zero.stage": stage}
    shown = {name: sha256_bytes(data) for name, data in files.items() if name.endswith(".json")}
    digest = sha256_bytes(canonical_json({"files": shown, "points": [list(point) for point in points]}))
    with open_client(uri) as client:
        page = Page(
            name=stage,
            key=key | {DIGEST_TAG: digest},
            tags={"mlflow.note.content": note},
            params={},
            points=list(points),
            files=dict(sorted(files.items())),
            data=None,
        )
        experiment = client.open_experiment(uri, lineage)
        run = experiment.write_once(page)
        experiment.delete_runs(key, keep=run.info.run_id)
        url: str = experiment.run_url(run.info.run_id)
        return url
