"""Files and folders as a tar stream: packing and unpacking, the same at both ends. Standard library only."""
