"""Workers spread over processes: for Python functions that are slow or not thread-safe."""
