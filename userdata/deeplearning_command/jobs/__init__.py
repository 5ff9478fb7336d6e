"""Subcommands about jobs: plan, run, logs, stop and the supervisor behind a run."""
