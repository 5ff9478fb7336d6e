"""Software of jobs: the environment, its files and its cache."""
