"""``python -m examples.flights``."""

import sys

from examples.flights.main import main

sys.exit(main())
