"""For mkdocs: a link that leads out of docs/ (to the sources, the examples) becomes its text and the path."""

import os
import re

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[\w./-]*)(?:#[\w-]+)?\)")


def on_page_markdown(markdown, page, **_):
    folder = os.path.dirname(page.file.src_path)

    def plain(match):
        target = os.path.normpath(os.path.join(folder, match[2]))
        if not target.startswith(".."):
            return match[0]
        path = os.path.relpath(target, "..")
        return match[1] if path in match[1] else f"{match[1]} (`{path}`)"

    return LINK.sub(plain, markdown)
