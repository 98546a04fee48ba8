"""The static helper, by its output."""

import subprocess
import tempfile
import unittest
from pathlib import Path


def fold(path):
    done = subprocess.run(["build/fold", path], stdout=subprocess.PIPE, check=True)
    return done.stdout.split()[0].decode()


class Fold(unittest.TestCase):
    def test_a_checksum_is_that_of_the_published_vectors(self):
        # A name that is different in each run and gone at its end.
        with tempfile.TemporaryDirectory() as directory:
            for text, expect in [(b"", "811c9dc5"), (b"a", "e40c292c"), (b"foobar", "bf9cf968")]:
                path = Path(directory, "text")
                path.write_bytes(text)
                self.assertEqual(fold(path), expect)

    def test_a_missing_file_is_an_error(self):
        done = subprocess.run(["build/fold", "data/none"], stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1)
