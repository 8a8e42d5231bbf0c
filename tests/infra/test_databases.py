"""The databases of the cluster, on a real PostgreSQL: who may enter which."""

import pytest

from tests.cluster.postgres import Postgres, needs_postgres

pytestmark = needs_postgres


@pytest.mark.parametrize("user", ["prefect", "mlflow"])
def test_a_user_owns_its_database(postgres: Postgres, user: str) -> None:
    made = postgres.ask(user, user, "CREATE TABLE made_here (a int); DROP TABLE made_here; SELECT current_user")
    assert made.stdout.split()[-1] == user


def test_prefect_can_make_the_extension_that_its_schema_needs(postgres: Postgres) -> None:
    postgres.ask("prefect", "prefect", "CREATE EXTENSION IF NOT EXISTS pg_trgm; DROP EXTENSION pg_trgm")


@pytest.mark.parametrize(("user", "other"), [("prefect", "mlflow"), ("mlflow", "prefect"), ("prefect", "postgres")])
def test_a_user_cannot_enter_another_database(postgres: Postgres, user: str, other: str) -> None:
    password = (postgres.secrets / f"{user}-database-password").read_text()
    refused = postgres.ask(user, other, "SELECT 1", password, check=False)
    assert refused.returncode != 0
    assert "permission denied for database" in refused.stderr


def test_a_wrong_password_is_refused(postgres: Postgres) -> None:
    refused = postgres.ask("prefect", "prefect", "SELECT 1", password="wrong", check=False)
    assert "password authentication failed" in refused.stderr


def test_no_password_is_refused(postgres: Postgres) -> None:
    refused = postgres.ask("postgres", "postgres", "SELECT 1", check=False)  # the superuser's is in no client's file
    assert "no password supplied" in refused.stderr


@pytest.mark.parametrize("user", ["prefect", "mlflow"])
def test_a_user_rules_nobody(postgres: Postgres, user: str) -> None:
    rights = "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
    assert postgres.ask(user, user, rights).stdout.strip() == "f"
