"""What every call has, by whichever protocol it came: it is admitted, held, counted, refused and drained."""
