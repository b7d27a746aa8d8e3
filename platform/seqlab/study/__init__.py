"""Claims of the field put to the test: what is measured, the rule that decides, the verdict, and its page."""
