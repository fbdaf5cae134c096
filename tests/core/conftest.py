"""Fixtures of the kernel's tests."""

from tests.support.toys import toys as toys
