"""A kit for each of these engines. Run by `test_engine_kit`."""

from tests.core.testing import faulty_import
from tests.core.testing.engine_kits import kits

globals().update(kits(faulty_import))
