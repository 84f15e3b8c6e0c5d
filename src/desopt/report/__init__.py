"""The report: figures, tables and verdicts, from results that are read and never changed."""
