"""Plants writes to another part's struct and checks that job_parts.py finds them."""

import job_parts

PARTS = """
// Rollback: where it goes back to.
struct JobRollback {
  uint64_t to = 0;
  std::vector<int> held;

  void Forget() { to = 0; }
};

// Epochs, OpenEpochs (job_facts.h): what was decided.
struct JobDecisions {
  std::vector<float> rates;
};
"""
GROUPED = (
    PARTS
    + """
// What is known of its copies.
struct JobPartitions {
  JobRollback rollback;
};
"""
)
JOB = "struct Job {\n  JobRollback rollback;\n  JobDecisions decisions;\n};\n"
GROUPED_JOB = "struct Job {\n  JobPartitions partitions;\n  JobDecisions decisions;\n};\n"
GOOD = {
    "rollback.cc": "  job.rollback.to = 3;\n",
    "job_facts.cc": "  job.decisions.rates.push_back(1);\n",
    "epochs.cc": "  job->decisions.rates.clear();\n  if (job.rollback.to == 3) job.rollback.Forget();\n"
    "  for (int h : job.rollback.held) Use(h, job.rollback.held[2], job.rollback.held.size());\n",
    "job.cc": "  job.rollback.to = stored.to();\n",
}
FAULTS = (
    "job.rollback.to = 4;",
    "job->rollback.to = 4;",
    "++job.rollback.to;",
    "job.rollback.to += 1;",
    "job.rollback.held[1] = 2;",
    "job.rollback.held.clear();",
    "std::erase_if(job.rollback.held, same);",
    "const auto old = std::exchange(job.rollback.held, {});",
)


def main():
    assert job_parts.check(PARTS, JOB, GOOD) == [], job_parts.check(PARTS, JOB, GOOD)
    for fault in FAULTS:
        problems = job_parts.check(PARTS, JOB, {**GOOD, "epochs.cc": f"  {fault}\n"})
        assert len(problems) == 1 and "is of rollback" in problems[0], (fault, problems)
    grouped = {name: text.replace(".rollback.", ".partitions.rollback.") for name, text in GOOD.items()}
    assert job_parts.check(GROUPED, GROUPED_JOB, grouped) == [], job_parts.check(GROUPED, GROUPED_JOB, grouped)
    for fault in FAULTS:
        fault = fault.replace("rollback.", "partitions.rollback.")
        problems = job_parts.check(GROUPED, GROUPED_JOB, {**grouped, "epochs.cc": f"  {fault}\n"})
        assert len(problems) == 1 and "is of rollback" in problems[0], (fault, problems)
    mixed = GROUPED.replace("  JobRollback rollback;\n", "  JobRollback rollback;\n  int more = 0;\n")
    assert any("JobPartitions" in p and "names no owner" in p for p in job_parts.check(mixed, GROUPED_JOB, grouped))
    assert any("does not hold JobRollback" in p for p in job_parts.check(PARTS, GROUPED_JOB, grouped))
    nobody = PARTS.replace("// Rollback: where", "// Where")
    assert any("names no owner" in p for p in job_parts.check(nobody, JOB, GOOD))
    assert any("holds none" in p for p in job_parts.check(PARTS, "", GOOD))
    print(f"{2 * len(FAULTS) + 4} planted faults were found")


if __name__ == "__main__":
    main()
