"""The result of an experiment for people: HTML with plots, Markdown, JSON."""

from evaluation.abtest.report.write import write_experiment_report

__all__ = ["write_experiment_report"]
