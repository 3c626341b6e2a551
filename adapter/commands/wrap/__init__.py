"""``mcp-adapter wrap``: servers at a URL, without a settings file.

flags.py reads the command line and finds a name, wrapped_settings.py has the settings and those to save, report.py the
text that is printed, and command.py looks at the server and serves it.
"""
