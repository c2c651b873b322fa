"""From an export to a fast folder: containers, the manifest, the session that pads."""
