"""``python -m dpfast``: the command line."""

import sys

from dpfast.cli import main

sys.exit(main())
