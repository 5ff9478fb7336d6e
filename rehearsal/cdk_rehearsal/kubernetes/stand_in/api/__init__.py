"""Rules of the stand-in's API: rights, defaults, checks, verbs, and what it tells `kubectl`."""
