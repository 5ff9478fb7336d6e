"""Coordination: queues, and the state record with the events of its transitions."""
