"""Reading requests: leniently, within limits, with the field named when something is wrong."""
