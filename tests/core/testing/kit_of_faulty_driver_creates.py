"""A kit for each of these drivers. Run by `test_driver_kit`."""

from tests.core.testing import faulty_driver_creates
from tests.core.testing.driver_kits import kits

globals().update(kits(faulty_driver_creates))
