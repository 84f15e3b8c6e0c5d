"""``desopt bench``: the kernels against plain NumPy, side by side in one run."""
