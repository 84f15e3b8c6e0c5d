"""Terminal, progress display, cores."""
