"""``desopt watch``: a live page for the runs and studies of a folder, read only."""
