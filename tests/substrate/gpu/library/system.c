/* Start, stop and the functions about the system as a whole. */
#include "mig.h"
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int starts;
static struct table table;

bool simulation_started(void) {
    return starts > 0;
}

const struct table *simulation_table(void) {
    return &table;
}

nvmlReturn_t check_device(nvmlDevice_t device) {
    NEED_INIT();
    const struct table *table = simulation_table();
    for (unsigned int i = 0; i < table->count; i++)
        if (device == &table->gpus[i])
            return has_node(device->minor) ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
    return mig_is_device(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t give_text(const char *text, char *out, unsigned int length) {
    NEED(out);
    if (strlen(text) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t start(void) {
    struct table now;
    char control[4096];
    nvmlReturn_t read = table_read(&now);
    if (read != NVML_SUCCESS)
        return read;
    host_path(control, sizeof control, "/dev/nvidiactl");
    if (now.loaded[0] == '\0' || access(control, F_OK) != 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strcmp(now.loaded, now.library) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    table = now;
    settings_start(&table);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    /* Handles point into the table: it must not move while somebody holds some. */
    if (starts == 0)
        result = start();
    if (result == NVML_SUCCESS)
        starts++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    NEED_INIT();
    pthread_mutex_lock(&lock);
    starts--;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    NEED_INIT();
    return give_text(table.loaded, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[TEXT + 8];
    NEED_INIT();
    snprintf(text, sizeof text, "12.%s", table.library);
    return give_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    NEED_INIT();
    NEED(version);
    *version = atoi(table.cuda_driver);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[64], text[TEXT] = "";
    NEED_INIT();
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *stream = fopen(path, "r");
    if (!stream)
        return NVML_ERROR_NOT_FOUND;
    if (fgets(text, sizeof text, stream))
        text[strcspn(text, "\n")] = '\0';
    fclose(stream);
    return give_text(text, name, length);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count) {
    NEED_INIT();
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

/* The texts of the real library; programs and users search for them. */
const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM: return "GPU access blocked by the operating system";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}
