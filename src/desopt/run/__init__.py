"""One run: its arguments, its loop, its journal, its end."""
