"""The ``desopt`` command: one module per subcommand, gathered in ``app``."""
