# SPDX-License-Identifier: Apache-2.0
"""A hook of MkDocs. Links of pages to files of the repository that the site does not have become links to the repository.

Links to pages and to files that do not exist stay as they are: MkDocs checks these. TestDocSiteHook runs this file.
"""

import pathlib
import posixpath
import re

LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, *, page, config, files):
    root = pathlib.Path(config["config_file_path"]).resolve().parent
    docs = pathlib.Path(config["docs_dir"]).resolve().relative_to(root).as_posix()

    def absolute(link):
        path = posixpath.normpath(posixpath.join(docs, posixpath.dirname(page.file.src_uri), link[1]))
        of_site = path.startswith(docs + "/") and files.get_file_from_path(path[len(docs) + 1 :])
        if of_site or not (root / path).exists():
            return link[0]
        return f"]({config['repo_url']}/blob/main/{path}{link[2] or ''})"

    return LINK.sub(absolute, markdown)
