"""The metrics: one module per family. The registrations here are light; the modules are imported on first use."""
