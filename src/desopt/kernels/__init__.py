"""Compiled loops over plain arrays, and the few functions whose bits must not depend on libm."""
