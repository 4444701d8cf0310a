"""Goal: what is wrong on a command line is named with what would be right, without a cluster; `cairn help`, `explain`
and the completion scripts of shells say what there is."""

import os
import shutil
import subprocess
import tempfile

from cluster import BIN, check
from jobs import small_job

CAIRN = os.path.join(BIN, "cairn")
# The arguments, and what standard error is, whole. JOB is a job file that is right.
MISTAKES = [
    (["jbos"], 'there is no command "cairn jbos"; did you mean `cairn jobs`?'),
    (["frobnicate"], 'there is no command "cairn frobnicate"; `cairn --help` says what there is'),
    (["data", "frobnicate"], 'there is no command "cairn data frobnicate"; `cairn data --help` says what there is'),
    (["data"], "`cairn data`: A subcommand is required; `cairn data --help` says what there is"),
    (["nodes", "drian", "x"], 'there is no command "cairn nodes drian"; did you mean `cairn nodes drain`?'),
    (["jobs", "--lmit", "3"], '`cairn jobs` has no flag "--lmit"; did you mean `--limit`?'),
    (["--jsn", "jobs"], '`cairn jobs` has no flag "--jsn"; did you mean `--json`?'),
    (["jobs", "--frob=1"], '`cairn jobs` has no flag "--frob"; `cairn jobs --help` says what there is'),
    (["jobs", "all"], '`cairn jobs` takes no argument "all"; `cairn jobs --help` says what there is'),
    (["submit"], "`cairn submit`: FILE is required; `cairn submit --help` says what there is"),
    (["help", "jbos"], 'there is no command "cairn jbos"; `cairn --help` lists them'),
    (
        ["jobs", "--state", "done"],
        '--state: there is no state "done"; use cancelled, ended with errors, failed, finalizing, queued, running, '
        "starting, succeeded",
    ),
    (["completion", "tcsh"], 'there is no completion for the shell "tcsh"; use bash, zsh or fish'),
    (["explain", "optimizer.adm"], 'Optimizer has no field "adm"; did you mean "adam"?'),
    (["explain", "epochs.x"], "epochs is not a message; it has no fields"),
    (
        ["jobs", "--coordinator", "http://127.0.0.1:7070"],
        'the coordinator\'s address: address "http://127.0.0.1:7070": "host:port" is expected, without "http://"',
    ),
    (
        ["jobs", "--coordinator", "localhost"],
        'the coordinator\'s address: address "localhost": "host:port" is expected',
    ),
    (["submit", "JOB", "--set", "epochs"], "--set epochs: write it as path.to.field=value"),
    (
        ["submit", "JOB", "--set", "epochs=many"],
        '--set epochs=many: "many" is not a whole number from -2147483648 to 2147483647',
    ),
    (
        ["submit", "JOB", "--set", "strategy=MIRROR"],
        '--set strategy=MIRROR: "MIRROR" is not one of MIRRORED, MULTI_WORKER_MIRRORED, PARAMETER_SERVER, '
        "CENTRAL_STORAGE; did you mean MIRRORED?",
    ),
    (
        ["submit", "JOB", "--set", "optimizer.adam.beta1=0.5"],
        '--set optimizer.adam.beta1=0.5: Adam has no field "beta1"; did you mean "beta_1"? (it has beta_1, beta_2, '
        "epsilon, amsgrad, corrected_epsilon)",
    ),
    (["sweep"], "give the job's FILE, or the -o of a sweep to go on with"),
    (
        ["sweep", "--grid", "epochs=1,2", "-o", "x"],
        "FILE is missing: without it a sweep goes on as it began, by -o alone",
    ),
    (
        ["sweep", "JOB", "--by", "loss"],
        "there is nothing to sweep: give --grid FIELD=VALUE,VALUE or --random N --range FIELD=LOW:HIGH",
    ),
    (
        ["sweep", "JOB", "--by", "loss", "--grid", "epochs=1,many"],
        'trial 2 (epochs=many): epochs=many: "many" is not a whole number from -2147483648 to 2147483647',
    ),
    (["submit", "."], ".: is a directory; name the job file in it"),
    (["data", "make", "mnist", "out"], "data make mnist: unknown; use glyphs, colour-glyphs, texts or sentences"),
    (
        ["up", "--http", "x"],
        "`cairn up`: --http: Value x not in range 0 to 65535; `cairn up --help` says what there is",
    ),
]
# What bash offers for the last word.
COMPLETIONS = [
    (["sub"], ["submit"]),
    (["nodes", "dr"], ["drain"]),
    (["submit", "--wa"], ["--watch"]),
    (["sweep", "--ha"], ["--halving", "--halving-factor"]),
    (["sweep", "--output", "/etc/passw"], ["/etc/passwd"]),
    (["help", "comp"], ["completion"]),
    (["completion", "z"], ["zsh"]),
    (["evaluate", "--split", "v"], []),
    (["submit", "/etc/passw"], ["/etc/passwd"]),
]


def run(*args, code=0, **kwargs):
    done = subprocess.run([CAIRN, *args], capture_output=True, text=True, timeout=300, **kwargs)
    check(done.returncode == code, f"{args}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}")
    return done


def check_mistakes(job):
    for args, text in MISTAKES:
        error = run(*(job if a == "JOB" else a for a in args), code=2).stderr
        check(error == f"cairn: {text}\n", f"{args}:\n{error}cairn: {text}")


def check_json_job(directory):
    path = os.path.join(directory, "job.json")
    with open(path, "w") as f:
        f.write('{"name": "a", "batchSize": 8, "epoch": 3}')
    error = run("submit", path, code=2).stderr
    check(error.startswith(f"cairn: {path}: as JSON: epoch: Cannot find field. `cairn explain`"), error)


def check_help():
    check(run("help", "nodes", "drain").stdout == run("nodes", "drain", "--help").stdout, "help of a command")
    check("beta_1" in run("explain", "optimizer.adam").stdout, "explain")
    check(run("explain").stdout.startswith("JobSpec\n"), "explain of the job")


def check_completion(directory):
    ask = (
        f'source <("{CAIRN}" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cairn; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    for words, wanted in COMPLETIONS:
        argv = ["bash", "-c", ask, "bash", "cairn", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        got = done.stdout.split()
        check(all(w in got for w in wanted) and (wanted or not got), f"{words}: {got}, {done.stderr}")
    for shell in ("zsh", "fish"):
        path = os.path.join(directory, f"cairn.{shell}")
        with open(path, "w") as f:
            f.write(run("completion", shell).stdout)
        if shutil.which(shell):
            subprocess.run([shell, "-n", path], check=True, timeout=60)


def main():
    with tempfile.TemporaryDirectory(prefix="cairn-command-line-") as directory:
        check_mistakes(small_job(directory, directory, name="good.textproto"))
        check_json_job(directory)
        check_help()
        check_completion(directory)


main()
