"""Stacks that this project deploys."""
