"""What happens at run time: the registry, the runner, turns, the reaper."""
