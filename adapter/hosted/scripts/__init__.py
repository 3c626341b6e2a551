"""Scripts of hosted tools: in the process, in threads, and in processes of their own."""
