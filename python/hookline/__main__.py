"""Makes `python -m hookline` the same as the command `hookline`."""

import sys

from .cli import main

sys.exit(main())
