"""A cluster seen from outside: what AWS answers about it, turned into one view, and the view into a page."""
