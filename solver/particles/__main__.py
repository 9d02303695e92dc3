"""``python -m solver.particles CASE``."""

import sys

from solver.particles.run import main

sys.exit(main())
