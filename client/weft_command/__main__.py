"""`python -m weft_command`: as `weft`."""

import sys

from weft_command import main

sys.exit(main())
