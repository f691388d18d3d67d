/* MIG: a card's profiles, where instances of them fit, and the GPU instances that there are.
 *
 * Profiles and their placements are data of the card's model.
 */
#include "settings.h"

#include <stdio.h>

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
    *instance = add_gpu_instance(card, profile, free_id(card, profile), start);
    return keep_settings();
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
    return keep_settings();
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
