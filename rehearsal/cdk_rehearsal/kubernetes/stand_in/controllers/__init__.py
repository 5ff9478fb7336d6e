"""Controllers of the stand-in: jobs, scheduler, nodes, claims, and what depends on removed objects."""
