"""The frontier page of a path, `SurvivalPath.report`: values on given rows, sections, tables, the page."""
