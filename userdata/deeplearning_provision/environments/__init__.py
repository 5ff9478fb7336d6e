"""Environments of jobs: recipes, builds, the cache, and the installation on nodes."""
