"""What is known of people and items beside the bundles: histories, profiles, seen and served items, API items."""
