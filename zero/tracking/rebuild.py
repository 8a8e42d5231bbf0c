"""Takes a lineage off an MLflow server, so that all of it can be written again from the record."""

from zero.tracking import open_client


def erase_lineage(lineage: str, uri: str) -> None:
    """Deletes the runs, saved models and the registered model of a lineage; nothing happens where there are none.

    MLflow keeps deleted runs in its bin until `mlflow gc`. Can be repeated.

    Raises:
      ServerError: the server does not answer.
    """
    with open_client(uri) as client:
        notebook = client.find_notebook(uri, lineage, deleted=True)
        if notebook is not None:
            notebook.erase()
