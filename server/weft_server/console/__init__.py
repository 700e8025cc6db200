"""The console: a page on the HTTP port, to ask each model and to see what it looked at."""
