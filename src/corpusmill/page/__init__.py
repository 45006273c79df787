"""The report as a page: one self-contained HTML file that fetches nothing and runs nothing."""

from corpusmill.page.page import render

__all__ = ["render"]
