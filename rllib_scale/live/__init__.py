"""The same schedulers on real Ray: a backend of actors, a library for callables, Ray Serve."""
