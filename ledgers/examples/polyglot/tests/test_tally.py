"""The C extension, and a result that the next stage of the pipeline reads."""

import json
import os
import unittest
from pathlib import Path

import tally


class Tally(unittest.TestCase):
    def test_words_are_what_stands_between_spaces(self):
        for text, expect in [(b"", 0), (b" ", 0), (b"one", 1), (b" one\ttwo\n", 2)]:
            self.assertEqual(tally.words(text), expect)

    def test_text_must_be_bytes(self):
        with self.assertRaises(TypeError):
            tally.words("one")

    def test_each_file_is_counted(self):
        counts = {path.name: tally.words(path.read_bytes()) for path in Path("data").glob("*.txt")}
        Path("out").mkdir(exist_ok=True)
        aside = Path("out", f"words.json.{os.getpid()}")
        aside.write_text(json.dumps(counts, sort_keys=True))
        aside.replace("out/words.json")
        self.assertEqual(counts, {"hill.txt": 12, "sea.txt": 14})
