"""Operations: logs, metrics, alarms, dashboard, events, dead letters, cost tags and spending limits."""
