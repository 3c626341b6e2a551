"""Upstreams that are processes of this machine.

server.py answers requests by processes, of which processes.py keeps the number and the pauses. conversation.py passes
messages between one process and its clients: under_way.py has the requests, audiences.py takes what belongs to none,
subscriptions.py knows who wants to hear of which resource, handshake.py opens sessions, outgoing.py and congestion.py
bound what waits in either direction.

child.py is one process with its three pipes, pipes.py reads and writes them, error_lines.py treats standard error and
environment.py chooses variables. supervisor.py speaks with one small process (supervisor_process.py) that starts all
children, ends each with everything it started, and outlives the adapter for as long as that takes; supervisor_link.py
is the connection to it, orders.py spells what is said there, process_table.py asks the system, and leftovers.py finds
processes whose supervisor was killed.
"""
