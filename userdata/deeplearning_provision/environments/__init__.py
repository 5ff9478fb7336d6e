"""Environments of jobs: recipes, builds, the cache, and how nodes take them."""
