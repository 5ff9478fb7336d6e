"""Coordination: queues, topics and the state record, functions beside them, and who may use what."""
