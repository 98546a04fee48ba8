"""The shell script, by what it leaves."""

import subprocess
import unittest
from pathlib import Path


class Report(unittest.TestCase):
    def test_a_report_has_each_file_twice_and_a_total(self):
        subprocess.run(["scripts/report.sh"], check=True)
        lines = Path("out/report.txt").read_text().splitlines()
        names = [line.split()[1] for line in lines]
        files = ["data/hill.txt", "data/sea.txt"]
        self.assertEqual(names, files + files + ["total"])
