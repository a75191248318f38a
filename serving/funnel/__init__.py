"""The funnel: candidate sources, filters, ranking and re-ranking, composed by a scene."""
