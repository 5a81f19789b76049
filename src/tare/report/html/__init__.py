"""The report as one page that needs nothing else: no network, light and dark, print and phone."""
