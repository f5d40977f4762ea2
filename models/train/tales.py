"""Reads and writes a list of tales: JSON lines, one tale a line.

A tale is a dict with `book`, `title` ("" where there is none) and `text`,
whose paragraphs are separated by an empty line.
"""
import json
from pathlib import Path


def read(path):
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def write(path, tales):
    lines = "".join(json.dumps(tale) + "\n" for tale in tales)
    Path(path).write_text(lines, encoding="utf-8")


def full_text(tale):
    """The title as a paragraph of its own, then the text."""
    return (tale["title"] + "\n\n" if tale["title"] else "") + tale["text"]
