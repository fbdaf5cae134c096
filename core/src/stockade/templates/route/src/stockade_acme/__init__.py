"""The route acme of Stockade: from a sandbox to one HTTP server, and to nothing else."""
