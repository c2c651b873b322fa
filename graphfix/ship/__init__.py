"""From an export to a folder that runs fast: containers, the manifest, the session that pads."""
