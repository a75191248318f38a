"""Reports: one self-contained HTML page, the same as Markdown, and JSON for machines."""

from evaluation.report.content import Example, RecommendedItem
from evaluation.report.write import ReportPaths, add_explanations, write_report

__all__ = ["Example", "RecommendedItem", "ReportPaths", "add_explanations", "write_report"]
