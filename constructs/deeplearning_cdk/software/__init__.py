"""Software of jobs: the environment, its cache, and which one a cluster takes."""
