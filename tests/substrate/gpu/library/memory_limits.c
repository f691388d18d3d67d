/* Limits of memory for control groups, which NVML has from R615 on. The header of the stubs is older, so that
 * the structure stands here.
 *
 * Each is a line more in a file of the host: "MINOR SOFT HARD GROUP". Nothing allocates memory on a simulated
 * card, and so nothing is refused.
 */
#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMITS "/run/substrate/gpu/memory-limits"
#define FIRST_BRANCH 615

struct set_limits {
    const char *group;
    unsigned long long soft, hard;
};

static nvmlReturn_t check(nvmlDevice_t device, const char *group) {
    struct stat found;
    NEED_DEVICE(device);
    NEED(group);
    if (atoi(simulation_table()->loaded) < FIRST_BRANCH)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (mig_is_device(device))
        return NVML_ERROR_NOT_SUPPORTED;
    return stat(group, &found) == 0 && S_ISDIR(found.st_mode) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const struct set_limits *limits);

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const struct set_limits *limits) {
    char path[4096];
    NEED(limits);
    nvmlReturn_t valid = check(device, limits->group);
    if (valid != NVML_SUCCESS)
        return valid;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    if (limits->soft > limits->hard)
        return NVML_ERROR_INVALID_ARGUMENT;
    host_path(path, sizeof path, LIMITS);
    FILE *stream = fopen(path, "a");
    if (!stream)
        return NVML_ERROR_UNKNOWN;
    fprintf(stream, "%u %llu %llu %s\n", device->minor, limits->soft, limits->hard, limits->group);
    return fclose(stream) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
