"""The wire: frames, streams with credit, and the kernel's end. ``frames`` and ``mux`` run inside too."""
