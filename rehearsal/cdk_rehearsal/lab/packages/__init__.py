"""Packages for nodes: a Debian archive and a Python index, served on the lab network."""
