"""What is told of a whole lineage, such as its ladder, as a run in MLflow: a point a generation, and its files.

Ratings change with every match. So a run is known by the digest of what it shows: the same again writes nothing, and
another one takes the place of the older, which MLflow keeps as deleted.
"""

from collections.abc import Mapping, Sequence

from zero.storage.files import canonical_json, sha256_bytes
from zero.tracking import open_client
from zero.tracking.metrics import Point
from zero.tracking.pages import Page

DIGEST_TAG = "zero.shown"
"""Digest of the metrics and of the files that are JSON: of pictures the bytes depend on the library's version."""


def track_summary(
    uri: str, lineage: str, stage: str, note: str, points: Sequence[Point], files: Mapping[str, bytes]
) -> str:
    """Writes one of a lineage's runs over all its generations in place of the one there; the address of its page.

    Args:
      uri: address of the server.
      lineage: name of the lineage.
      stage: name of the run, by which it is found again.
      note: what a reader of the run is told.
      points: its metrics; step = generation.
      files: its files by name.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
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
        notebook = client.open_notebook(uri, lineage)
        run = notebook.open_run(page)
        notebook.fill_run(run, page)
        notebook.delete_others(key, run.info.run_id)
        url: str = notebook.run_url(run.info.run_id)
        return url
