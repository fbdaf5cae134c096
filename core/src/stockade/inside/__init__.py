"""The program inside a sandbox: ``python -m stockade.inside``. Standard library and one engine adapter only.

A tiny init supervises it (`init`); the program itself (`program`) greets the kernel over the one channel
and serves its streams: turns, commands, control, and tunnels for the routes.
"""
