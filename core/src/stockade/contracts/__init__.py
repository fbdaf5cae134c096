"""What plugin authors implement: one abstract class a noun."""
