"""Messaging: SNS, SQS and EventBridge, with schedules and faults of delivery."""
