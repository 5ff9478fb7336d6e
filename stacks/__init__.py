"""Stacks that this project deploys, one per file."""
