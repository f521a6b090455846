"""Pictures of what was measured, as Vega-Lite specifications for `xcal.pages`."""
