"""Operations: logs, metrics, alarms, dashboard, events, dead letters and spending limits."""
