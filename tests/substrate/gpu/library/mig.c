/* MIG: modes, GPU instances, compute instances and the devices that they make; compute mode.
 *
 * A card's profiles and their placements are data of its model. What is set is written to a file of
 * the host, and the host then brings device tables, /proc and device nodes up to date: containers
 * read it from the table. As with the real driver, a MIG device is there for a process only if the
 * nodes of its capabilities are.
 */
#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_INSTANCES 8
#define GI_PER_GPU 15 /* as the driver numbers capabilities: each has 8 compute instances */
#define CI_PER_GI 8
#define FIRST_CAPABILITY 3
#define SETTINGS "/run/substrate/gpu/settings"
#define REFRESH "/usr/lib/substrate/gpu/simulated-gpus"

struct nvmlComputeInstance_st {
    bool there;
    unsigned int id, profile, slices, start;
    struct nvmlGpuInstance_st *gpu_instance;
    struct nvmlDevice_st device; /* the MIG device that it is */
};

struct nvmlGpuInstance_st {
    bool there;
    unsigned int id, start;
    const struct mig_profile *profile;
    struct card *card;
    struct nvmlComputeInstance_st parts[MAX_INSTANCES];
};

static struct card {
    unsigned int mode, pending, compute_mode;
    const struct nvmlDevice_st *gpu;
    struct nvmlGpuInstance_st instances[MAX_INSTANCES];
} cards[MAX_GPUS];

/* Compute instances of these numbers of slices: NVML_COMPUTE_INSTANCE_PROFILE_* is the place. */
static const unsigned int compute_slices[] = {1, 2, 3, 4, 7, 8, 6};
#define COMPUTE_PROFILES (sizeof compute_slices / sizeof *compute_slices)

static struct card *card_of(nvmlDevice_t device) {
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

static const struct mig_profile *profile_by_id(const struct nvmlDevice_st *gpu, unsigned int id) {
    for (unsigned int i = 0; i < gpu->mig_profile_count; i++)
        if (gpu->mig_profiles[i].id == id)
            return &gpu->mig_profiles[i];
    return NULL;
}

static bool has_capability(unsigned int minor, const struct nvmlComputeInstance_st *part) {
    unsigned int own = FIRST_CAPABILITY + (minor * GI_PER_GPU + part->gpu_instance->id) * (CI_PER_GI + 1);
    char name[64], path[4096];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/dev/nvidia-caps/nvidia-cap%u", i ? own + 1 + part->id : own);
        host_path(path, sizeof path, name);
        if (access(path, R_OK) != 0)
            return false;
    }
    return true;
}

/* The same instance has the same UUID inside and outside, and after a reboot. */
static void name_device(struct nvmlComputeInstance_st *part) {
    const struct nvmlDevice_st *gpu = part->gpu_instance->card->gpu;
    const struct mig_profile *profile = part->gpu_instance->profile;
    unsigned long long hash = 14695981039346656037ULL;
    char place[TEXT + 32], partial[8] = "";
    snprintf(place, sizeof place, "%s/%u/%u", gpu->uuid, part->gpu_instance->id, part->id);
    for (const char *c = place; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
    struct nvmlDevice_st *device = &part->device;
    *device = *gpu;
    device->memory_mib = profile->memory_mib;
    device->reserved_mib = 0;
    device->mig_instances = device->mig_profile_count = 0;
    snprintf(device->uuid, sizeof device->uuid, "MIG-bed91a7e-%04llx-5%03llx-8%03llx-%012llx", hash >> 48,
             hash >> 36 & 0xfff, hash >> 24 & 0xfff, hash & 0xffffffffffffULL);
    if (part->slices != profile->slices)
        snprintf(partial, sizeof partial, "%uc.", part->slices);
    snprintf(device->name, sizeof device->name, "%.60s MIG %s%.20s", gpu->name, partial, profile->name);
}

static bool free_memory(const struct card *card, unsigned int start, unsigned int size) {
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        const struct nvmlGpuInstance_st *one = &card->instances[i];
        if (one->there && start < one->start + one->profile->size && one->start < start + size)
            return false;
    }
    return true;
}

/* How many more instances of a profile fit, and where the next goes: -1 for nowhere. */
static unsigned int remaining(const struct card *card, const struct mig_profile *profile, int *next) {
    unsigned int used = 0, slices = 0, count = 0, end = 0;
    *next = -1;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        const struct nvmlGpuInstance_st *one = &card->instances[i];
        slices += one->there ? one->profile->slices : 0;
        used += one->there && one->profile == profile;
    }
    for (unsigned int i = 0; i < profile->start_count; i++) {
        unsigned int start = profile->starts[i];
        if (start < end || !free_memory(card, start, profile->size) || used + count >= profile->count ||
            slices + (count + 1) * profile->slices > card->gpu->mig_instances)
            continue;
        if (*next < 0)
            *next = (int)start;
        end = start + profile->size;
        count++;
    }
    return count;
}

static struct nvmlGpuInstance_st *add_instance(struct card *card, const struct mig_profile *profile,
                                               unsigned int id, unsigned int start) {
    struct nvmlGpuInstance_st *one = &card->instances[id % MAX_INSTANCES];
    memset(one, 0, sizeof *one);
    *one = (struct nvmlGpuInstance_st){
        .there = true, .id = id, .start = start, .profile = profile, .card = card};
    return one;
}

static struct nvmlComputeInstance_st *add_part(struct nvmlGpuInstance_st *owner, unsigned int id,
                                               unsigned int profile, unsigned int start) {
    struct nvmlComputeInstance_st *part = &owner->parts[id];
    *part = (struct nvmlComputeInstance_st){.there = true, .id = id, .profile = profile,
        .slices = compute_slices[profile], .start = start, .gpu_instance = owner};
    name_device(part);
    return part;
}

void mig_start(const struct table *table) {
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
            add_instance(card, profile_by_id(card->gpu, b), a, c);
        } else if (sscanf(line, "compute_instance %u %u %u %u %u", &minor, &a, &b, &c, &d) == 5 &&
                   (card = card_by_minor(table, minor)) && a < MAX_INSTANCES && b < MAX_INSTANCES &&
                   c < COMPUTE_PROFILES && card->instances[a].there) {
            add_part(&card->instances[a], b, c, d);
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

/* Have the host keep what is set now, and show it. */
static nvmlReturn_t keep(void) {
    char path[4096], program[4096];
    host_path(path, sizeof path, SETTINGS);
    FILE *stream = fopen(path, "w");
    if (!stream)
        return NVML_ERROR_NO_PERMISSION;
    for (unsigned int i = 0; i < simulation_table()->count; i++)
        write_card(stream, &cards[i]);
    if (fclose(stream) != 0)
        return NVML_ERROR_UNKNOWN;
    host_path(program, sizeof program, REFRESH);
    if (access(program, X_OK) != 0)
        return NVML_SUCCESS; /* a test's root, which shows it itself */
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "refresh", (char *)NULL);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}

#define NEED_CARD(card, device)            \
    NEED_DEVICE(device);                   \
    struct card *card = card_of(device);   \
    if (card == NULL)                      \
        return NVML_ERROR_NOT_SUPPORTED
#define NEED_MIG(card, device)                      \
    NEED_CARD(card, device);                        \
    if (device->mig_profile_count == 0)             \
        return NVML_ERROR_NOT_SUPPORTED;            \
    if (card->mode == NVML_DEVICE_MIG_DISABLE)      \
        return NVML_ERROR_NOT_SUPPORTED
#define NEED_INSTANCE(instance)                                     \
    NEED_INIT();                                                    \
    NEED(instance);                                                 \
    if (!instance->there)                                           \
        return NVML_ERROR_NOT_FOUND

/* ---- modes */

static bool busy(const struct card *card) {
    return processes_of(card->gpu->minor, NULL, 0) > 0;
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
    if (card->mode != mode && (busy(card) || divided(card)))
        *activation = NVML_ERROR_IN_USE; /* waits for a reset of the card */
    else
        card->mode = mode;
    if (card->mode == NVML_DEVICE_MIG_ENABLE)
        card->compute_mode = NVML_COMPUTEMODE_DEFAULT;
    return keep();
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
    return keep();
}

/* ---- profiles */

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    NEED_CARD(card, device);
    NEED(info);
    for (unsigned int i = 0; i < device->mig_profile_count; i++) {
        const struct mig_profile *one = &device->mig_profiles[i];
        if (one->profile != profile)
            continue;
        *info = (nvmlGpuInstanceProfileInfo_t){.id = one->id, .sliceCount = one->slices,
            .instanceCount = one->count, .multiprocessorCount = one->processors,
            .copyEngineCount = one->copy_engines, .decoderCount = one->decoders,
            .jpegCount = one->jpeg, .ofaCount = one->ofa, .memorySizeMB = one->memory_mib};
        return NVML_SUCCESS;
    }
    (void)card;
    return profile < NVML_GPU_INSTANCE_PROFILE_COUNT ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    nvmlGpuInstanceProfileInfo_t plain;
    NEED(info);
    if (info->version != nvmlGpuInstanceProfileInfo_v2 && info->version != nvmlGpuInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t found = nvmlDeviceGetGpuInstanceProfileInfo(device, profile, &plain);
    if (found != NVML_SUCCESS)
        return found;
    const char *name = profile_by_id(device, plain.id)->name;
    if (info->version == nvmlGpuInstanceProfileInfo_v2) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = info->version, .id = plain.id,
            .sliceCount = plain.sliceCount, .instanceCount = plain.instanceCount,
            .multiprocessorCount = plain.multiprocessorCount, .copyEngineCount = plain.copyEngineCount,
            .decoderCount = plain.decoderCount, .jpegCount = plain.jpegCount,
            .ofaCount = plain.ofaCount, .memorySizeMB = plain.memorySizeMB};
        snprintf(info->name, sizeof info->name, "MIG %s", name);
        return NVML_SUCCESS;
    }
    nvmlGpuInstanceProfileInfo_v3_t *newer = (nvmlGpuInstanceProfileInfo_v3_t *)info;
    *newer = (nvmlGpuInstanceProfileInfo_v3_t){.version = newer->version, .id = plain.id,
        .sliceCount = plain.sliceCount, .instanceCount = plain.instanceCount,
        .multiprocessorCount = plain.multiprocessorCount, .copyEngineCount = plain.copyEngineCount,
        .decoderCount = plain.decoderCount, .jpegCount = plain.jpegCount, .ofaCount = plain.ofaCount,
        .memorySizeMB = plain.memorySizeMB};
    snprintf(newer->name, sizeof newer->name, "MIG %s", name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                           nvmlGpuInstancePlacement_t *places,
                                                           unsigned int *count) {
    NEED_MIG(card, device);
    NEED(count);
    const struct mig_profile *profile = profile_by_id(device, id);
    if (!profile)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (places && *count < profile->start_count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; places && i < profile->start_count; i++)
        places[i] = (nvmlGpuInstancePlacement_t){profile->starts[i], profile->size};
    *count = profile->start_count;
    (void)card;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                        nvmlGpuInstancePlacement_t *places,
                                                        unsigned int *count) {
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, places, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id,
                                                       unsigned int *count) {
    int next;
    NEED_MIG(card, device);
    NEED(count);
    const struct mig_profile *profile = profile_by_id(device, id);
    if (!profile)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = remaining(card, profile, &next);
    return NVML_SUCCESS;
}

/* ---- GPU instances */

/* The real driver counts from 1 where there is room; the whole card is 0. */
static unsigned int free_id(const struct card *card, const struct mig_profile *profile) {
    unsigned int id = profile->slices == card->gpu->mig_instances ? 0 : 1;
    while (id < MAX_INSTANCES && card->instances[id].there)
        id++;
    return id < MAX_INSTANCES ? id : 0;
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                      const nvmlGpuInstancePlacement_t *place,
                                                      nvmlGpuInstance_t *instance) {
    int next;
    NEED_MIG(card, device);
    NEED(instance);
    const struct mig_profile *profile = profile_by_id(device, id);
    if (!profile)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (remaining(card, profile, &next) == 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    unsigned int start = place ? place->start : (unsigned int)next;
    if (!free_memory(card, start, profile->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *instance = add_instance(card, profile, free_id(card, profile), start);
    return keep();
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    return nvmlDeviceCreateGpuInstanceWithPlacement(device, id, NULL, instance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    NEED_INSTANCE(instance);
    for (unsigned int i = 0; i < MAX_INSTANCES; i++)
        if (instance->parts[i].there)
            return NVML_ERROR_IN_USE;
    instance->there = false;
    return keep();
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances,
                                       unsigned int *count) {
    NEED_MIG(card, device);
    NEED(count);
    *count = 0;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        if (!card->instances[i].there || card->instances[i].profile->id != id)
            continue;
        if (instances)
            instances[*count] = &card->instances[i];
        (*count)++;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    NEED_MIG(card, device);
    NEED(instance);
    if (id >= MAX_INSTANCES || !card->instances[id].there)
        return NVML_ERROR_NOT_FOUND;
    *instance = &card->instances[id];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    NEED_INSTANCE(instance);
    NEED(info);
    *info = (nvmlGpuInstanceInfo_t){(nvmlDevice_t)instance->card->gpu, instance->id, instance->profile->id,
        {instance->start, instance->profile->size}};
    return NVML_SUCCESS;
}

/* ---- compute instances */

static unsigned int free_slices(nvmlGpuInstance_t instance, unsigned int *start) {
    unsigned int used = 0;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++)
        used += instance->parts[i].there ? instance->parts[i].slices : 0;
    *start = used;
    return instance->profile->slices - used;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
                                                          unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    NEED_INSTANCE(instance);
    NEED(info);
    if (engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (profile >= COMPUTE_PROFILES || compute_slices[profile] > instance->profile->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct mig_profile *whole = instance->profile;
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile, .sliceCount = compute_slices[profile],
        .instanceCount = whole->slices / compute_slices[profile],
        .multiprocessorCount = whole->processors / whole->slices * compute_slices[profile],
        .sharedCopyEngineCount = whole->copy_engines, .sharedDecoderCount = whole->decoders,
        .sharedJpegCount = whole->jpeg, .sharedOfaCount = whole->ofa};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
                                                           unsigned int engines,
                                                           nvmlComputeInstanceProfileInfo_v2_t *info) {
    nvmlComputeInstanceProfileInfo_t plain;
    NEED(info);
    unsigned int version = info->version;
    if (version != nvmlComputeInstanceProfileInfo_v2 && version != nvmlComputeInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t found = nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, engines, &plain);
    if (found != NVML_SUCCESS)
        return found;
    /* The third version is the second with one more field at the end. */
    *info = (nvmlComputeInstanceProfileInfo_v2_t){.version = version, .id = plain.id,
        .sliceCount = plain.sliceCount, .instanceCount = plain.instanceCount,
        .multiprocessorCount = plain.multiprocessorCount, .sharedCopyEngineCount = plain.sharedCopyEngineCount,
        .sharedDecoderCount = plain.sharedDecoderCount, .sharedJpegCount = plain.sharedJpegCount,
        .sharedOfaCount = plain.sharedOfaCount};
    if (version == nvmlComputeInstanceProfileInfo_v3)
        ((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities = 0;
    if (plain.sliceCount == instance->profile->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", instance->profile->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", plain.sliceCount, instance->profile->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                unsigned int profile, unsigned int *count) {
    unsigned int start;
    NEED_INSTANCE(instance);
    NEED(count);
    if (profile >= COMPUTE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = free_slices(instance, &start) / compute_slices[profile];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile,
                                                  nvmlComputeInstance_t *part) {
    unsigned int start, id = 0;
    NEED_INSTANCE(instance);
    NEED(part);
    if (profile >= COMPUTE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (free_slices(instance, &start) < compute_slices[profile])
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (instance->parts[id].there)
        id++;
    *part = add_part(instance, id, profile, start);
    return keep();
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t part) {
    NEED_INSTANCE(part);
    if (busy(part->gpu_instance->card))
        return NVML_ERROR_IN_USE;
    part->there = false;
    return keep();
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile,
                                                nvmlComputeInstance_t *parts, unsigned int *count) {
    NEED_INSTANCE(instance);
    NEED(count);
    *count = 0;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        if (!instance->parts[i].there || instance->parts[i].profile != profile)
            continue;
        if (parts)
            parts[*count] = &instance->parts[i];
        (*count)++;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *part) {
    NEED_INSTANCE(instance);
    NEED(part);
    if (id >= MAX_INSTANCES || !instance->parts[id].there)
        return NVML_ERROR_NOT_FOUND;
    *part = &instance->parts[id];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t part, nvmlComputeInstanceInfo_t *info) {
    NEED_INSTANCE(part);
    NEED(info);
    *info = (nvmlComputeInstanceInfo_t){(nvmlDevice_t)part->gpu_instance->card->gpu, part->gpu_instance,
        part->id, part->profile, {part->start, part->slices}};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t part, nvmlComputeInstanceInfo_t *info) {
    return nvmlComputeInstanceGetInfo_v2(part, info);
}

/* ---- MIG devices */

/* Go through the MIG devices that this process may see; NULL after the last. */
static struct nvmlComputeInstance_st *next_part(const struct card *only, struct nvmlComputeInstance_st *after) {
    bool passed = after == NULL;
    for (unsigned int i = 0; i < simulation_table()->count; i++) {
        for (unsigned int n = 0; (!only || only == &cards[i]) && n < MAX_INSTANCES * MAX_INSTANCES; n++) {
            struct nvmlGpuInstance_st *one = &cards[i].instances[n / MAX_INSTANCES];
            struct nvmlComputeInstance_st *part = &one->parts[n % MAX_INSTANCES];
            if (passed && one->there && part->there && has_capability(cards[i].gpu->minor, part))
                return part;
            passed = passed || part == after;
        }
    }
    return NULL;
}

static struct nvmlComputeInstance_st *part_of(nvmlDevice_t device) {
    struct nvmlComputeInstance_st *part = NULL;
    while ((part = next_part(NULL, part)))
        if (&part->device == device)
            return part;
    return NULL;
}

bool mig_is_device(nvmlDevice_t device) {
    return part_of(device) != NULL;
}

nvmlDevice_t mig_by_uuid(const char *uuid) {
    struct nvmlComputeInstance_st *part = NULL;
    while ((part = next_part(NULL, part)))
        if (strcmp(part->device.uuid, uuid) == 0)
            return &part->device;
    return NULL;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    NEED_DEVICE(device);
    NEED(count);
    *count = device->mig_instances;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    NEED_DEVICE(device);
    NEED(is);
    *is = mig_is_device(device);
    return NVML_SUCCESS;
}

/* Not NOT_SUPPORTED: nvidia-ctk takes that for a failure, NOT_FOUND for an empty slot. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig) {
    struct nvmlComputeInstance_st *part = NULL;
    NEED_DEVICE(device);
    NEED(mig);
    if (card_of(device) == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i <= index; i++)
        if ((part = next_part(card_of(device), part)) == NULL)
            return NVML_ERROR_NOT_FOUND;
    part->device.index = index;
    *mig = &part->device;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    NEED_DEVICE(mig);
    NEED(device);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)part->gpu_instance->card->gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned int *id) {
    NEED_DEVICE(mig);
    NEED(id);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_FOUND;
    *id = part->gpu_instance->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned int *id) {
    NEED_DEVICE(mig);
    NEED(id);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_FOUND;
    *id = part->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
    NEED_DEVICE(mig);
    NEED(attributes);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct mig_profile *whole = part->gpu_instance->profile;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = whole->processors / whole->slices * part->slices,
        .sharedCopyEngineCount = whole->copy_engines, .sharedDecoderCount = whole->decoders,
        .sharedJpegCount = whole->jpeg, .sharedOfaCount = whole->ofa,
        .gpuInstanceSliceCount = whole->slices, .computeInstanceSliceCount = part->slices,
        .memorySizeMB = whole->memory_mib};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(mig, attributes);
}
