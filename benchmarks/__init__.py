"""Speed as ratios within one run: ``python -m benchmarks [NAME…] [--check]``. These are no tests."""
