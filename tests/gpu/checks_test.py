"""Goal: the results of a test program on a GPU reach the reader of the table. Every failed test is named; a test that
crashes its process or leaves the device unusable does not affect the results of the others; and a program that skips
all tests is not a success. The program is a script of a few lines, written for each case."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks  # noqa: E402
import checks_fast  # noqa: E402
import programs  # noqa: E402

# A test program of four tests. `fate` tells the outcome of each, given the names that this process is to run.
PROGRAM = """#!/usr/bin/env python3
import os, sys
names = ["S/T.a/0", "S/T.a/1", "S/T.b/0", "U.c"]
fate = {fate!r}
wanted = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--gtest_filter"))
wanted = names if wanted == "*" else [n for n in names if n in wanted.split(":")]
if "--gtest_list_tests" in sys.argv:
    print("Running main() from a file")
    for name in wanted:
        print(name.split(".")[0] + ".\\n  " + name.split(".")[1] + "  # GetParam() = 0")
    sys.exit()
bad = unusable = False
for name in wanted:
    print(f"[ RUN      ] {{name}}", flush=True)
    what = "fails" if unusable else fate.get(name, "passes")
    if what == "crashes":
        os.abort()
    unusable = unusable or what == "breaks"
    if what == "skips":
        print("file:1: Skipped\\nthere is no GPU\\n")
    elif what != "passes":
        print(f"{{name}} says {{'cudaErrorIllegalAddress, an illegal memory access' if unusable else 'it differs'}}")
        bad = True
    state = {{"passes": "       OK ", "skips": "  SKIPPED "}}.get(what, "  FAILED  ")
    parameter = ", where GetParam() = x" if state == "  FAILED  " else ""
    print(f"[{{state}}] {{name}}{{parameter}} (3 ms)", flush=True)
sys.exit(1 if bad else 0)
"""


class Gtest(unittest.TestCase):
    def program(self, fate):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, "program")
        with open(path, "w") as f:
            f.write(textwrap.dedent(PROGRAM).format(fate=fate))
        os.chmod(path, 0o755)
        return [path]

    def outcome(self, fate):
        argv = self.program(fate)
        return programs.run_tests(argv, programs.names_of(argv, "*"))

    def test_all_pass(self):
        for shards in (1, 3, 9):
            self.assertEqual(programs.gtest(self.program({}), shards=shards), "4 tests")

    def test_failed_ones_are_named(self):
        outcome = self.outcome({"S/T.a/1": "fails", "U.c": "fails"})
        self.assertEqual(outcome.failed, ["S/T.a/1", "U.c"])
        self.assertEqual(outcome.passed, {"S/T.a/0", "S/T.b/0"})
        with self.assertRaisesRegex(programs.TestFailure, "1 of 4 tests failed, 3 passed: S/T.b/0"):
            programs.gtest(self.program({"S/T.b/0": "fails"}), shards=2)

    def test_a_crash_costs_no_other_test(self):
        outcome = self.outcome({"S/T.a/0": "fails", "S/T.a/1": "crashes"})
        self.assertEqual(outcome.failed, ["S/T.a/0", "S/T.a/1"])
        self.assertEqual(outcome.passed, {"S/T.b/0", "U.c"})

    def test_an_unusable_device_costs_no_other_test(self):
        outcome = self.outcome({"S/T.a/1": "breaks"})
        self.assertEqual(outcome.failed, ["S/T.a/1"])
        self.assertEqual(outcome.passed, {"S/T.a/0", "S/T.b/0", "U.c"})

    def test_all_skipped_is_no_success(self):
        fate = {name: "skips" for name in ("S/T.a/0", "S/T.a/1", "S/T.b/0", "U.c")}
        with self.assertRaisesRegex((programs.Skip, programs.TestFailure), "there is no GPU"):
            programs.gtest(self.program(fate))


class Sanitizer(unittest.TestCase):
    def test_reports_are_of_kernels_not_of_the_way_there(self):
        text = textwrap.dedent(
            """\
            ========= COMPUTE-SANITIZER
            [ RUN      ] Sanitized/OneStep.OfASmallCnn/Strict
            ========= Error: Race reported between Write access at void cutlass::Kernel<x>(T1::Params)+0x90
            =========     and Read access at void cutlass::Kernel<x>(T1::Params)+0x150 [64 hazards]
            =========     Host Frame: cairn::cudnn::Conv::Launch [0x1] in libcairn_cudnn.so
            =========.
            ========= Invalid __global__ write of size 4 bytes
            =========     at void cairn::cudnn::kernels::Run<cairn::cudnn::kernels::ForEach<x>>(T1)+0x3b0
            =========     by thread (0,0,0) in block (1,0,0)
            =========.
            ========= ERROR SUMMARY: 2 errors
            """
        ).replace("=========.\n", "========= \n")
        reports = checks_fast.sanitizer_reports(text)
        self.assertEqual(len(reports), 2)
        self.assertEqual([r for r in reports if "cairn::" in r], reports[1:])
        self.assertEqual(
            checks_fast.sanitizer_reports("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors"), []
        )


class CommandLine(unittest.TestCase):
    def test_wrong_words_are_said(self):
        for words, text in (
            (["--minutes"], "a number of minutes"),
            (["--minutes", "nine", "smoke"], "a number of minutes"),
            (["smoek"], "no such check: smoek"),
        ):
            done = subprocess.run([sys.executable, checks.__file__, *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
