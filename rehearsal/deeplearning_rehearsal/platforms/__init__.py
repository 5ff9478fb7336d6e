"""Platforms of a cluster: what each has in a template, and how its jobs start and its logs are found."""
