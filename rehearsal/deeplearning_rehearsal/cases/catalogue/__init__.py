"""The fault cases of this package, a function each."""
