"""Subcommands about data and software: data, environment, provision and wait."""
