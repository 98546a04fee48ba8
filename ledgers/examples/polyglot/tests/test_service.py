"""A server on a port that the kernel chooses, and its client: a connection within the job, which is no entry of the ledger."""

import socket
import socketserver
import threading
import unittest

import tally


class CountWords(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"%d\n" % tally.words(self.rfile.readline()))


class Service(unittest.TestCase):
    def test_words_are_counted_over_tcp(self):
        with socketserver.TCPServer(("127.0.0.1", 0), CountWords) as server:
            thread = threading.Thread(target=server.handle_request, daemon=True)
            thread.start()
            with socket.create_connection(server.server_address) as client:
                client.sendall(b"one two three\n")
                self.assertEqual(client.makefile().readline(), "3\n")
            thread.join()
