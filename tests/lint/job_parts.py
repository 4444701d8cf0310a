"""Checks that each struct that parts of the core keep for a job (coordinator/core/job_parts.h) is written only by its
owner.

    job_parts.py FOLDER    the folder of job_parts.h; prints problems, one per line; exit code 1 if there are any

The structs are in the headers PARTS; one that holds only others (JobPartitions) has no owner. The comment above any
other begins with its owners: `// Rollback: ...`, `// Epochs, OpenEpochs (job_facts.h): ...`. An owner is a part, whose
files begin with its name in snake case, or a class or function with its file in parentheses. Others change the struct
only through its own functions. job.cc and job_table.cc load and store all structs.
"""

import os
import re
import sys

EVERYTHING = ("job.cc", "job_table.cc")
PARTS = ("job_parts.h", "job_partitions.h", "job_workers.h", "job_outputs.h")
STRUCT = re.compile(r"((?:^//[^\n]*\n)+)^struct (Job\w+) \{", re.M)
MEMBER = re.compile(r"^  (Job\w+) (\w+);", re.M)
BODY = re.compile(r"^struct (Job\w+) \{\n(.*?)^\};", re.M | re.S)
OWNER = r"[A-Z]\w*(?: \(\w+\.(?:h|cc)\))?"
OWNERS = re.compile(r"^// (%s(?:, %s)*): " % (OWNER, OWNER))
CHANGES = (
    "clear|push_back|emplace_back|erase|insert|assign|resize|emplace|try_emplace|reset|swap|pop_\\w+|"
    "mutable_\\w+|set_\\w+|Add|Clear|Swap|DeleteSubrange"
)
AFTER = re.compile(r"(?:\[[^\]]*\])?\s*(?:=(?!=)|\+\+|--|[-+|&]=|\.(?:%s)\()" % CHANGES)
BEFORE = re.compile(r"(?:\+\+|--|std::erase(?:_if)?\(|std::exchange\(|std::move\()$")


def stems(owners):
    """Prefixes of file names: `JobRuns` is job_runs, `OpenEpochs (job_facts.h)` is job_facts."""
    found = []
    for owner in owners.split(", "):
        named = re.search(r"\((\w+)\.(?:h|cc)\)", owner)
        found.append(named.group(1) if named else re.sub(r"(?<!^)([A-Z])", r"_\1", owner).lower())
    return found


def check(parts, job, files):
    """parts, job: the headers of PARTS and job.h. files: the folder's .cc files, by name."""
    problems, owners = [], {}
    groups = {}  # by struct: its members, all of which are structs of parts
    for struct, body in BODY.findall(parts):
        fields = re.findall(r"^  \w[\w:<>, ]* (\w+)(?: =[^;]*)?;", body, re.M)
        members = {member: of for of, member in MEMBER.findall(body)}
        if fields and len(fields) == len(members):
            groups[struct] = members
    for comment, struct in STRUCT.findall(parts):
        first = OWNERS.match(comment)
        if first:
            owners[struct] = stems(first.group(1))
    members = {}  # by how a job names it: the struct
    for struct, member in MEMBER.findall(job):
        if struct in owners:
            members[member] = struct
        for inner, of in groups.get(struct, {}).items():
            members[f"{member}.{inner}"] = of
    for struct in sorted({s for s, _ in BODY.findall(parts)} - set(owners) - set(groups)):
        problems.append(f"{struct} ({', '.join(PARTS)}): its comment names no owner")
    if not members:
        problems.append("job.h: it holds none of the structs of job_parts.h")
    unheld = set(owners) - set(members.values())
    if members and unheld:
        problems.append(f"job.h: it does not hold {', '.join(sorted(unheld))}, or their group")
    names = "|".join(re.escape(m) for m in sorted(members) or ["-"])
    field = re.compile(r"\bjob(?:->|\.)(%s)\.(\w+)(?!\w*\()" % names)
    for name, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            for match in field.finditer(line):
                struct = members[match.group(1)]
                if name in EVERYTHING or any(name.startswith(stem) for stem in owners[struct]):
                    continue
                if AFTER.match(line[match.end() :]) or BEFORE.search(line[: match.start()]):
                    problems.append(
                        f"{name}:{number}: writes {match.group(1)}.{match.group(2)}, which is of {owners[struct][0]}; "
                        f"give {struct} a function that says what happened"
                    )
    return problems


def main(folder):
    def read(name):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()

    files = {name: read(name) for name in sorted(os.listdir(folder)) if name.endswith(".cc")}
    problems = check("".join(read(name) for name in PARTS), read("job.h"), files)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
