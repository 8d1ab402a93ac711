"""The head of a page that is whole: nothing is fetched, and nothing but its own style and script is obeyed."""

import base64
import hashlib

from privadmm.runs.report.safe import safe


def hashed(content: str) -> str:
    """The digest by which a policy names a style sheet or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def head(title: str, css: str, script: str | None = None, inline: bool = False) -> str:
    """Everything up to the body. `inline` admits styles of single elements, which matplotlib's figures have."""
    policy = [
        "default-src 'none'",
        f"style-src {hashed(css)}",
        *(["style-src-attr 'unsafe-inline'"] if inline else []),
        *([] if script is None else [f"script-src {hashed(script)}"]),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{safe(title)}</title>
<style>{css}</style>
</head>"""
