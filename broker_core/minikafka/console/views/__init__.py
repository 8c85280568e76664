"""The pages of the console, a module for each noun. Each page is a function of a ``Visit``; it may block."""
