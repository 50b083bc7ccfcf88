"""The Java classes that scripts name, without Java."""
