"""What stands on a screen."""
