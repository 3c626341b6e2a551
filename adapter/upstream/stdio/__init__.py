"""Upstreams that are processes of this machine.

server.py answers requests by processes, of which processes.py keeps the number and the pauses. conversation.py passes
messages between one process and its clients: audiences.py takes what belongs to no request, and shared.py opens and
tells sessions that share a process.

child.py is one process with its environment and its three pipes, pipes.py reads and writes them, error_lines.py treats
standard error, and failures.py says what went wrong. supervisor.py speaks with one small process
(supervisor_process.py) that starts all children, ends each with everything it started, and outlives the adapter for as
long as that takes; supervisor.py is the connection to it, orders.py spells what is said there, and
process_table.py asks the system, also for what a supervisor left behind that was killed.
"""
