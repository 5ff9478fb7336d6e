"""Schemas of a version of Kubernetes, and patches that follow them."""
