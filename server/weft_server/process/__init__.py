"""The process: its signals, its threads, its lasting tasks, and the points where tests stop it."""
