"""One small adapter for each training framework. None of them is imported before it is used."""
