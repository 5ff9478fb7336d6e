"""Operations: metrics, alarms, dashboard and dead letters."""
