/* What NVML's callers set on cards: their modes, and the instances that MIG divides them into. */
#ifndef SIMULATION_SETTINGS_H
#define SIMULATION_SETTINGS_H

#include "simulation.h"

#define MAX_INSTANCES 8

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

struct card {
    unsigned int mode, pending, compute_mode;
    const struct nvmlDevice_st *gpu;
    struct nvmlGpuInstance_st instances[MAX_INSTANCES];
};

/* Of each card of the table, in its order. */
extern struct card cards[MAX_GPUS];

/* Numbers of slices of compute instances: NVML_COMPUTE_INSTANCE_PROFILE_* is the place. */
#define COMPUTE_PROFILES 7
extern const unsigned int compute_slices[COMPUTE_PROFILES];

/* Read the table's settings, as they were left. Called when the table is new. */
void settings_start(const struct table *table);

/* Have the host keep what is set now, and show it. */
nvmlReturn_t keep_settings(void);

/* What is set on a card of the table; NULL for a MIG device. */
struct card *card_of(nvmlDevice_t device);

/* Whether something computes on the card. */
bool card_is_busy(const struct card *card);

/* The card's profile with NVML's id, or NULL. */
const struct mig_profile *profile_by_id(const struct nvmlDevice_st *gpu, unsigned int id);

/* Put an instance where its caller knows it to fit. Nothing is kept yet. */
struct nvmlGpuInstance_st *add_gpu_instance(struct card *card, const struct mig_profile *profile,
                                            unsigned int id, unsigned int start);
struct nvmlComputeInstance_st *add_compute_instance(struct nvmlGpuInstance_st *owner, unsigned int id,
                                                    unsigned int profile, unsigned int start);

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

#endif
