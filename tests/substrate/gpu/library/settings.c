/* Modes and instances that are set on cards: kept in a file of the host, read again from the table.
 *
 * The host brings device tables, /proc and device nodes up to date after each change: containers
 * read what is set from the table.
 */
#include "settings.h"

#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTINGS "/run/substrate/gpu/settings"
#define REFRESH "/usr/lib/substrate/gpu/simulated-gpus"

/* Privileged pods with the host's processes: what a driver would be asked through its device node. */
#define HOST "/proc/1/root"

struct card cards[MAX_GPUS];

const unsigned int compute_slices[COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 8, 6};

struct card *card_of(nvmlDevice_t device) {
    for (unsigned int i = 0; i < simulation_table()->count; i++)
        if (cards[i].gpu == device)
            return &cards[i];
    return NULL;
}

static struct card *card_by_minor(const struct table *table, unsigned int minor) {
    for (unsigned int i = 0; i < table->count; i++)
        if (table->gpus[i].minor == minor)
            return &cards[i];
    return NULL;
}

const struct mig_profile *profile_by_id(const struct nvmlDevice_st *gpu, unsigned int id) {
    for (unsigned int i = 0; i < gpu->mig_profile_count; i++)
        if (gpu->mig_profiles[i].id == id)
            return &gpu->mig_profiles[i];
    return NULL;
}

bool card_is_busy(const struct card *card) {
    return processes_of(card->gpu->minor, NULL, 0) > 0;
}

struct nvmlGpuInstance_st *add_gpu_instance(struct card *card, const struct mig_profile *profile,
                                            unsigned int id, unsigned int start) {
    struct nvmlGpuInstance_st *one = &card->instances[id % MAX_INSTANCES];
    memset(one, 0, sizeof *one);
    *one = (struct nvmlGpuInstance_st){
        .there = true, .id = id, .start = start, .profile = profile, .card = card};
    return one;
}

struct nvmlComputeInstance_st *add_compute_instance(struct nvmlGpuInstance_st *owner, unsigned int id,
                                                    unsigned int profile, unsigned int start) {
    struct nvmlComputeInstance_st *part = &owner->parts[id];
    *part = (struct nvmlComputeInstance_st){.there = true, .id = id, .profile = profile,
        .slices = compute_slices[profile], .start = start, .gpu_instance = owner};
    mig_name_device(part);
    return part;
}

void settings_start(const struct table *table) {
    memset(cards, 0, sizeof cards);
    for (unsigned int i = 0; i < table->count; i++)
        cards[i].gpu = &table->gpus[i];
    for (unsigned int i = 0; i < table->setting_count; i++) {
        unsigned int minor, a, b, c, d;
        const char *line = table->settings[i];
        struct card *card;
        if (sscanf(line, "mig_mode %u %u %u", &minor, &a, &b) == 3 && (card = card_by_minor(table, minor))) {
            card->mode = a;
            card->pending = b;
        } else if (sscanf(line, "compute_mode %u %u", &minor, &a) == 2 && (card = card_by_minor(table, minor))) {
            card->compute_mode = a;
        } else if (sscanf(line, "gpu_instance %u %u %u %u", &minor, &a, &b, &c) == 4 &&
                   (card = card_by_minor(table, minor)) && profile_by_id(card->gpu, b) && a < MAX_INSTANCES) {
            add_gpu_instance(card, profile_by_id(card->gpu, b), a, c);
        } else if (sscanf(line, "compute_instance %u %u %u %u %u", &minor, &a, &b, &c, &d) == 5 &&
                   (card = card_by_minor(table, minor)) && a < MAX_INSTANCES && b < MAX_INSTANCES &&
                   c < COMPUTE_PROFILES && card->instances[a].there) {
            add_compute_instance(&card->instances[a], b, c, d);
        }
    }
}

static void write_card(FILE *stream, const struct card *card) {
    unsigned int minor = card->gpu->minor;
    if (card->mode || card->pending)
        fprintf(stream, "mig_mode %u %u %u\n", minor, card->mode, card->pending);
    if (card->compute_mode)
        fprintf(stream, "compute_mode %u %u\n", minor, card->compute_mode);
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        const struct nvmlGpuInstance_st *one = &card->instances[i];
        if (!one->there)
            continue;
        fprintf(stream, "gpu_instance %u %u %u %u\n", minor, one->id, one->profile->id, one->start);
        for (unsigned int n = 0; n < MAX_INSTANCES; n++)
            if (one->parts[n].there)
                fprintf(stream, "compute_instance %u %u %u %u %u\n", minor, one->id, one->parts[n].id,
                        one->parts[n].profile, one->parts[n].start);
    }
}

static FILE *open_settings(const char **root) {
    char path[4096];
    *root = "";
    host_path(path, sizeof path, SETTINGS);
    FILE *stream = fopen(path, "w");
    if (!stream && !getenv("SIMULATED_GPU_ROOT")) {
        *root = HOST;
        stream = fopen(HOST SETTINGS, "w");
    }
    return stream;
}

nvmlReturn_t keep_settings(void) {
    char program[4096];
    const char *root;
    FILE *stream = open_settings(&root);
    if (!stream)
        return NVML_ERROR_NO_PERMISSION;
    for (unsigned int i = 0; i < simulation_table()->count; i++)
        write_card(stream, &cards[i]);
    if (fclose(stream) != 0)
        return NVML_ERROR_UNKNOWN;
    host_path(program, sizeof program, REFRESH);
    if (!*root && access(program, X_OK) != 0)
        return NVML_SUCCESS; /* a test's root, which shows it itself */
    pid_t child = fork();
    if (child == 0) {
        if (!*root || (chroot(root) == 0 && chdir("/") == 0))
            execl(program, program, "refresh", (char *)NULL);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}

static bool divided(const struct card *card) {
    for (unsigned int i = 0; i < MAX_INSTANCES; i++)
        if (card->instances[i].there)
            return true;
    return false;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    NEED_DEVICE(device);
    NEED(now);
    NEED(pending);
    if (device->mig_instances == 0 || card_of(device) == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    *now = card_of(device)->mode;
    *pending = card_of(device)->pending;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation) {
    NEED_CARD(card, device);
    NEED(activation);
    if (device->mig_profile_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode > NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_INVALID_ARGUMENT;
    card->pending = mode;
    *activation = NVML_SUCCESS;
    if (card->mode != mode && (card_is_busy(card) || divided(card)))
        *activation = NVML_ERROR_IN_USE; /* waits for a reset of the card */
    else
        card->mode = mode;
    if (card->mode == NVML_DEVICE_MIG_ENABLE)
        card->compute_mode = NVML_COMPUTEMODE_DEFAULT;
    return keep_settings();
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    NEED_DEVICE(device);
    NEED(mode);
    *mode = card_of(device) ? card_of(device)->compute_mode : NVML_COMPUTEMODE_DEFAULT;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    NEED_CARD(card, device);
    if (mode >= NVML_COMPUTEMODE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (card->mode == NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_NOT_SUPPORTED;
    card->compute_mode = mode;
    return keep_settings();
}
