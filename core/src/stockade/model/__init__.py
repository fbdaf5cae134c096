"""Plain data: what crosses between the kernel, its plugins and a sandbox. Standard library only."""
