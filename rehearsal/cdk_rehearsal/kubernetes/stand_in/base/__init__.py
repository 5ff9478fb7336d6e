"""Clock, kinds, refusals and the store of the stand-in's objects."""
