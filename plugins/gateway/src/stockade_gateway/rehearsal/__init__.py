"""A scripted model: engine-neutral scripts, played in the dialect of whoever asks."""
