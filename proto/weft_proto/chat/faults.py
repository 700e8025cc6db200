"""What can go wrong with a chat's template, each in one sentence on one line."""


class NoTemplate(Exception):
    """A source is no template, or has what a chat's may not have, or takes no plain message of a user."""


class TemplateFailed(Exception):
    """A template did what it cannot do, such as adding a number to a text."""


class BeyondLimit(Exception):
    """A template has cost what it may."""
