"""Speech that recipes synthesise: what is said, by whom, and with what noise."""
