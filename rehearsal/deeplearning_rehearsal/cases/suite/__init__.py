"""Several fault cases in one command: in which order, how many at once, and which need not be repeated."""
