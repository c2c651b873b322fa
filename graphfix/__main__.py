"""``python -m graphfix``: the same as ``graphfix``."""

import sys

from graphfix.cli import main

if __name__ == "__main__":
    sys.exit(main())
