"""Images of the lab: the root file system of nodes, and the layers on it."""
