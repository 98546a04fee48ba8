// Serves on a socket until it is killed, or connects to one: `tcp` on a port of loopback that it says, `unix PATH`; `connect PATH`.

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void need(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void serve(int listener) {
    need(listen(listener, 8) == 0, "listen");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int peer = accept(listener, NULL, NULL);
        need(peer >= 0, "accept");
        close(peer);
    }
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "tcp")) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        need(bind(listener, (void *)&at, size) == 0, "bind");
        need(getsockname(listener, (void *)&at, &size) == 0, "getsockname");
        printf("%d ", ntohs(at.sin_port));
        serve(listener);
    }
    if (argc < 3)
        return 2;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, argv[2], sizeof at.sun_path - 1);
    int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!strcmp(way, "unix")) {
        need(bind(socket_, (void *)&at, sizeof at) == 0, "bind");
        serve(socket_);
    }
    need(connect(socket_, (void *)&at, sizeof at) == 0, "connect");
    return 0;
}
