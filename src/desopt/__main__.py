"""``python -m desopt``: the command line where the script ``desopt`` is not on the PATH."""

from desopt.cli.app import main

if __name__ == "__main__":
    main()
