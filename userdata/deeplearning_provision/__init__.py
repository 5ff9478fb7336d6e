"""Data and software environments of jobs, brought to the nodes while the cluster forms."""
