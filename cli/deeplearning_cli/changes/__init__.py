"""Comparison of a synthesized stack with the deployed one: what a deployment does to nodes, jobs and data."""
