"""Subcommands for jobs: plan, run, logs, stop and the supervisor of a run."""
