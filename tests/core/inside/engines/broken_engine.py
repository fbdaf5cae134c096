"""An engine whose import fails in the worst way."""

import sys

sys.exit("no licence found")
