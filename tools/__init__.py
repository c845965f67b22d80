"""The workspace's own tools: what the sessions of the noxfile run, none of it shipped."""
