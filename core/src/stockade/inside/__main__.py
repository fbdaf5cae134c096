"""``python -m stockade.inside``."""

import sys

from stockade.inside.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
