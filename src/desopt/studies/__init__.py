"""Experiments: cases as data, a store of their results, and what runs them."""
