"""Runs the command `hookline` as `python -m hookline`."""

import sys

from .cli import main

sys.exit(main())
