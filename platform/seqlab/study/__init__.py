"""Studies, which test claims of the field: measurements, decision rules, verdicts, and pages."""
