"""A page to see the service at work: ask for a user, send an event, watch the list change."""
