"""Software of rehearsed nodes: downloads, job packages and kept environments."""
