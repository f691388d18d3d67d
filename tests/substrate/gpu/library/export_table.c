/* The table of unnamed functions that nvidia-smi asks for beside the public ones.
 *
 * Without it nvidia-smi reports "Mismatch in versions". What is known of it was found by watching:
 * element 0 holds a size; a call with a small number, a pointer and 0x22 asks for the handle of
 * that card; 213 to 215 count something and 241 asks for a card's NUMA node. A call with a card's
 * handle that is not known must leave the caller's memory alone.
 */
#include "simulation.h"

#include <stdint.h>
#include <string.h>

#define SIZE 256
#define TABLE_BYTES 0x1000
#define ASK_HANDLE 0x22

static const unsigned char known_table[4] = {0xc4, 0xfe, 0x3e, 0x6c};

static nvmlReturn_t answer(unsigned int element, uintptr_t first, uintptr_t second, uintptr_t third) {
    if (!simulation_started())
        return NVML_SUCCESS;
    const struct table *table = simulation_table();
    if (first < table->count && second > 0xffff && third == ASK_HANDLE) {
        *(nvmlDevice_t *)second = (nvmlDevice_t)&table->gpus[first];
        return NVML_SUCCESS;
    }
    if (check_device((nvmlDevice_t)first) != NVML_SUCCESS)
        return NVML_SUCCESS;
    if (element >= 213 && element <= 215 && second > 0xffff) {
        *(unsigned int *)second = 0;
        return NVML_SUCCESS;
    }
    if (element == 241 && second > 0xffff) {
        *(int *)second = -1;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

#define ONE(n) \
    static nvmlReturn_t element_##n(uintptr_t a, uintptr_t b, uintptr_t c) { return answer(0x##n, a, b, c); }
#define SIXTEEN(h) \
    ONE(h##0) ONE(h##1) ONE(h##2) ONE(h##3) ONE(h##4) ONE(h##5) ONE(h##6) ONE(h##7) \
    ONE(h##8) ONE(h##9) ONE(h##a) ONE(h##b) ONE(h##c) ONE(h##d) ONE(h##e) ONE(h##f)
SIXTEEN(0) SIXTEEN(1) SIXTEEN(2) SIXTEEN(3) SIXTEEN(4) SIXTEEN(5) SIXTEEN(6) SIXTEEN(7)
SIXTEEN(8) SIXTEEN(9) SIXTEEN(a) SIXTEEN(b) SIXTEEN(c) SIXTEEN(d) SIXTEEN(e) SIXTEEN(f)

#define ENTRY(n) (uintptr_t)element_##n,
#define ENTRIES(h) \
    ENTRY(h##0) ENTRY(h##1) ENTRY(h##2) ENTRY(h##3) ENTRY(h##4) ENTRY(h##5) ENTRY(h##6) ENTRY(h##7) \
    ENTRY(h##8) ENTRY(h##9) ENTRY(h##a) ENTRY(h##b) ENTRY(h##c) ENTRY(h##d) ENTRY(h##e) ENTRY(h##f)

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *identifier);

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *identifier) {
    static uintptr_t elements[SIZE];
    static const uintptr_t functions[] = {
        ENTRIES(0) ENTRIES(1) ENTRIES(2) ENTRIES(3) ENTRIES(4) ENTRIES(5) ENTRIES(6) ENTRIES(7)
        ENTRIES(8) ENTRIES(9) ENTRIES(a) ENTRIES(b) ENTRIES(c) ENTRIES(d) ENTRIES(e) ENTRIES(f)
    };
    NEED(table);
    NEED(identifier);
    if (memcmp(identifier, known_table, sizeof known_table) != 0)
        return NVML_ERROR_NOT_FOUND;
    memcpy(elements, functions, sizeof elements);
    elements[0] = TABLE_BYTES;
    *table = elements;
    return NVML_SUCCESS;
}
