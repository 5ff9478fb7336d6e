"""Fault cases: functions that inject faults into a rehearsal, and assert what must be seen then."""
