"""A cluster seen from outside: what AWS returns about it, turned into one view, and the view into a page."""
