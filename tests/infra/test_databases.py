"""The databases of the cluster, on a real PostgreSQL: who may enter which."""

import pytest

from tests.cluster.postgres import Postgres, needs_postgres

pytestmark = needs_postgres


@pytest.mark.parametrize("user", ["prefect", "mlflow"])
def test_a_user_owns_its_database_without_rights_over_others(postgres: Postgres, user: str) -> None:
    postgres.ask(user, user, "CREATE TABLE made_here (a int); DROP TABLE made_here")
    if user == "prefect":  # its schema needs this extension
        postgres.ask(user, user, "CREATE EXTENSION IF NOT EXISTS pg_trgm; DROP EXTENSION pg_trgm")
    rights = "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
    assert postgres.ask(user, user, rights).stdout.strip() == "f"


@pytest.mark.parametrize(("user", "other"), [("prefect", "mlflow"), ("mlflow", "prefect"), ("prefect", "postgres")])
def test_a_user_cannot_enter_another_database(postgres: Postgres, user: str, other: str) -> None:
    password = (postgres.secrets / f"{user}-database-password").read_text()
    refused = postgres.ask(user, other, "SELECT 1", password, check=False)
    assert refused.returncode != 0
    assert "permission denied for database" in refused.stderr


@pytest.mark.parametrize(
    ("user", "password", "complaint"),
    [
        ("prefect", "wrong", "password authentication failed"),
        ("postgres", "", "no password supplied"),  # the superuser's is in no client's file
    ],
)
def test_a_wrong_password_or_none_is_refused(postgres: Postgres, user: str, password: str, complaint: str) -> None:
    assert complaint in postgres.ask(user, user, "SELECT 1", password, check=False).stderr
