"""`weft doctor`: looks at a machine on which a server shall run. It works without the extra server too."""
