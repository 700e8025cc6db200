"""A bundle that takes messages, made of one that continues prompts."""

import hashlib
import json
import shutil


def with_template(bundle, directory, template):
    """Copy a bundle to a directory, and give it a chat's template."""
    shutil.copytree(bundle, directory)
    (directory / "chat.jinja").write_bytes(template)
    manifest = json.loads((directory / "bundle.json").read_text())
    manifest["text"]["chat"] = {"template": "chat.jinja"}
    digest = hashlib.sha256(template).hexdigest()
    manifest["files"].append({"path": "chat.jinja", "sha256": digest, "sizeBytes": str(len(template))})
    (directory / "bundle.json").write_text(json.dumps(manifest))
