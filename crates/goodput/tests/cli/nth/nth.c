/*
 * Runs a command and has one system call of one kind fail: the n-th of all that its threads and children make, counted from the
 * start of main. By seccomp's notifications (seccomp_unotify(2)): what is not to fail goes on in the kernel as it was.
 *
 *   nth KIND N ERRNO SECONDS COUNTS COMMAND ARGUMENT...
 *
 * KIND is clone, open, pipe, socket or write. N is 0 for none. How many calls of the kind there were is written to the file COUNTS.
 * Exit code: the command's; 128 + n where signal n ended it; 124 where it did not end within SECONDS; 125 where this program fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct { const char *name; int calls[6]; } kinds[] = {
    { "clone", { SYS_clone3, SYS_clone, SYS_vfork, SYS_fork, -1 } },
    { "open", { SYS_openat, SYS_open, SYS_openat2, -1 } },
    { "pipe", { SYS_pipe2, SYS_pipe, SYS_socketpair, SYS_eventfd2, -1 } },
    { "socket", { SYS_socket, SYS_accept4, SYS_accept, -1 } },
    { "write", { SYS_write, SYS_writev, SYS_pwrite64, -1 } },
};

static void fail(const char *what) { perror(what); _exit(125); }

/* Notifies of the kind's calls, and of sigaltstack: Rust's start of main is the first to call it. */
static int filter(const int *calls) {
    struct sock_filter code[32];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; calls[i] >= 0; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { .len = (unsigned short)n, .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no new privileges");
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void give(int socket, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1) fail("handing over the listener");
}

static int take(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    int fd;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message)) _exit(125);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int count, char **words) {
    if (count < 7) return 125;
    const int *calls = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, words[1])) calls = kinds[i].calls;
    if (!calls) return 125;
    long nth = atol(words[2]), seen = 0;
    int error = atoi(words[3]), ends[2], begun = 0, status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) fail("socketpair");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        int listener = filter(calls);
        if (listener < 0) fail("seccomp");
        give(ends[1], listener);
        close(listener);
        execv(words[6], words + 6);
        _exit(127);
    }
    close(ends[1]);
    int listener = take(ends[0]);
    time_t until = time(NULL) + atol(words[4]);
    for (;;) {
        struct pollfd ready = { .fd = listener, .events = POLLIN };
        if (poll(&ready, 1, 10) > 0 && (ready.revents & POLLIN)) {
            struct seccomp_notif asks;
            memset(&asks, 0, sizeof asks);
            if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asks)) continue;
            struct seccomp_notif_resp says = { .id = asks.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
            if (asks.data.nr == SYS_sigaltstack) {
                begun = 1;
            } else if (begun && ++seen == nth) {
                says.flags = 0;
                says.error = -error;
            }
            ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &says);
            continue;
        }
        if (waitpid(child, &status, WNOHANG) == child) break;
        if (time(NULL) >= until) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            status = 124 << 8;
            break;
        }
    }
    FILE *counts = fopen(words[5], "w");
    if (!counts || fprintf(counts, "%ld\n", seen) < 0 || fclose(counts)) fail("writing the count");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
