"""``python -m examples.registry``."""

import sys

from examples.registry.main import main

sys.exit(main())
