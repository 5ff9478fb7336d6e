"""Subcommands for data and software: data, environment, provision and wait."""
