"""Provisioning of nodes with data and software environments of jobs, while the cluster forms."""
