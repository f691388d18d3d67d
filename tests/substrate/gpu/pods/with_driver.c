/* Starts NVIDIA's program of its own name in a pod, with the host's simulated driver in /proc.
 *
 * A real driver shows /proc/driver in every container, as the kernel has one. The simulated one is mounted
 * in the host's mount namespace, which a pod's /proc does not have. The device plugin's pod is privileged
 * and has the host's root, and so it can have the same mount. A pod without that root has none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define HOSTS "/driver-root/proc/driver"
#define OWN "/proc/driver"

int main(int argc, char **argv) {
    (void)argc;
    const char *slash = strrchr(argv[0], '/');
    char program[4096];
    snprintf(program, sizeof program, "/usr/bin/%s", slash ? slash + 1 : argv[0]);
    if (access(HOSTS, F_OK) == 0 && mount(HOSTS, OWN, NULL, MS_BIND, NULL) != 0) {
        perror("the simulated driver cannot be mounted: " HOSTS " on " OWN);
        return EXIT_FAILURE;
    }
    execv(program, argv);
    perror(program);
    return EXIT_FAILURE;
}
