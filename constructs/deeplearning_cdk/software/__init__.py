"""Software of jobs: the environment, its cache, and its choice for a cluster."""
