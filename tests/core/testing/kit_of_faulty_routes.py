"""A kit for each of these plugins. Run by `test_other_kits`."""

from tests.core.testing import faulty_routes
from tests.core.testing.other_kits import kits

globals().update(kits("Route", faulty_routes))
