"""`python -m bedplate.cli`: the command `bedplate`, for which this needs no program of pip."""

import sys

from bedplate.cli.main import main

sys.exit(main())
