"""What runs where, and what a person watches: Prefect flows around the stages of `zero`."""
