"""A/B experiments in the service: assignment of live requests, exposures, reload without a restart."""
