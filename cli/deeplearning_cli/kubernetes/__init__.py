"""Clusters of EKS: the caller's token, the client of the API server, and the state of its Jobs."""
