"""A chat's template: rendered by a server, and tried by an export, in the same sandbox. It needs jinja2."""
