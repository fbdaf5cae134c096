"""A kit for each of these plugins. Run by `test_other_kits`."""

from tests.core.testing import faulty_policies
from tests.core.testing.other_kits import kits

globals().update(kits("Policy", faulty_policies))
