"""`python -m reply_resolution` is the command line."""

import sys

from reply_resolution.cli import main

sys.exit(main())
