"""`python -m eccache` is the `eccache` command."""

from eccache.app.cli import main

if __name__ == "__main__":
    main()
