"""`python -m intrigue`."""

import sys

from intrigue.cli import main

sys.exit(main())
