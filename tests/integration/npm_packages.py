"""Packages from npm that tests run, each in a folder of its own.

    why = install("s3rver@3.7.1", folder)        # "": folder/node_modules/s3rver is there; else why it is not
"""

import os
import shutil
import subprocess


def install(package, folder):
    """Does nothing if it is there. Runs no install scripts: a package has what it needs, or names others."""
    if os.path.isdir(os.path.join(folder, "node_modules", package.rpartition("@")[0])):
        return ""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "npm or node is not installed"
    beside = f"{folder}.{os.getpid()}"
    os.makedirs(beside, exist_ok=True)
    try:
        done = subprocess.run(
            ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", package],
            cwd=beside,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            return f"npm cannot install {package}: {done.stderr.strip()[-300:]}"
        if not os.path.isdir(folder):
            os.rename(beside, folder)
        return ""
    except (subprocess.TimeoutExpired, OSError) as error:
        # Another process may have been faster.
        return "" if os.path.isdir(folder) else f"npm cannot install {package}: {error}"
    finally:
        shutil.rmtree(beside, ignore_errors=True)
