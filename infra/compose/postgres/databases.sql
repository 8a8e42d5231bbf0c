-- Run once, by the first start of PostgreSQL with an empty folder: a database and a user each for Prefect and MLflow. The
-- passwords are read from files, so that they are neither in the environment nor on a command line.
\set prefect_password `cat "$PREFECT_DATABASE_PASSWORD_FILE"`
\set mlflow_password `cat "$MLFLOW_DATABASE_PASSWORD_FILE"`

CREATE ROLE prefect LOGIN PASSWORD :'prefect_password';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE DATABASE prefect OWNER prefect;
CREATE DATABASE mlflow OWNER mlflow;

-- Each user has its own database and no other.
REVOKE ALL ON DATABASE prefect, mlflow, postgres, template1 FROM PUBLIC;
