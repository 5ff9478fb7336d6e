"""Runs of jobs: folder, name, status, supervision, logs and the report of a failure."""
