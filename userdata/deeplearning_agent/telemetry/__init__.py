"""Telemetry: log shipping, node metrics, training throughput and events."""
