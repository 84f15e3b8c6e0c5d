"""Studies: cases as data, a store of their results, and the processes that run them."""
