"""The plan of a tool call: the stages around its execution, the same for hosted tools and for those of upstreams."""
