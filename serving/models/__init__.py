"""From the folder of a bundle to scores: loading, verifying, versions and swaps. Start at `served.py`."""
