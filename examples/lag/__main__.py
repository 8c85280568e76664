"""``python -m examples.lag``."""

import sys

from examples.lag.main import main

sys.exit(main())
