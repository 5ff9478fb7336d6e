"""Subcommands for the nodes: hosts, health, exec, setup, end and the stop of idle clusters."""
