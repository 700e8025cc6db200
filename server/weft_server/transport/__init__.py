"""Connections and the bytes on them: messages that come, answers that go, and the status of each."""
