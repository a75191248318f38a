"""Splits a network into what depends on the user alone, on the item alone, and on the pair.

nodes.py     a computation as a graph whose every value knows what it depends on
values.py    values that are put together of both sides: side by side, or added up
rules.py     how operations of TensorFlow treat such values
split.py     the three functions of a network

Exact but for the order of additions: a product of a matrix with user and item columns side by side is the sum of two
products, one of which is computed once for a request and the other once for an item.
"""
