"""View of a cluster from outside: built from AWS's responses, and rendered as a page."""
