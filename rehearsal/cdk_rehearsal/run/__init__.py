"""A run: the enclosure, the fleet, the timeline and progress, memory and its record."""
