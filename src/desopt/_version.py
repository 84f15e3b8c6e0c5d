"""The version, written here and nowhere else."""

__version__ = "0.2.0"

#: The first release with the bits of this one. Journals and messages carry it, and are refused
#: where it differs: it changes with the results of any method, not with every release.
SAME_BITS_SINCE = "0.1"
