"""What a running Toolscout tells of itself: logs, metrics, traces, the journal of calls."""
