"""Checks: pure functions over what was given and what was answered, which return findings as short notes.

A note is a stable code, and after a blank what it is about: `placeholder_missing %s`, `lines 4→3`. A
finding never changes the text of an answer; whoever keeps notes can count them by their first word.
"""
