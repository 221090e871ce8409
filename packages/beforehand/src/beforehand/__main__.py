"""`python -m beforehand`: the command line."""

from beforehand.cli.main import main

if __name__ == "__main__":
    main()
