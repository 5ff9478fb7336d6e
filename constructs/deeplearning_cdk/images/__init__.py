"""Machine images: which one nodes start from, and how its id is pinned."""
