# SPDX-License-Identifier: Apache-2.0
"""A hook of MkDocs. Links of pages to files of the repository that the site does not have become links to the repository.
Headings get the anchors that GitHub gives them, so that a link works in both places, unless a page has a heading twice.

Links to pages and to files that do not exist stay as they are: MkDocs checks these. TestDocSiteHook runs this file.
"""

import pathlib
import posixpath
import re

LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def slug(title, separator):
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def on_config(config):
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    return config


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
