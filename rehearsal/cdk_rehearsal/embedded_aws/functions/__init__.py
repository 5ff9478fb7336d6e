"""Lambda: functions, their environments, permissions and logs."""
