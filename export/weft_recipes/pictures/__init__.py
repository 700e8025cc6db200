"""Pictures that recipes draw: scenes of shapes, and digits somewhere on a canvas."""
