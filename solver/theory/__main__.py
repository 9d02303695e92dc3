"""``python -m solver.theory``."""

import sys

from solver.theory.run import main

if __name__ == "__main__":
    sys.exit(main())
