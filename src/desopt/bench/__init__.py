"""``desopt bench``: the compiled code against plain NumPy, and the costs of a run."""
