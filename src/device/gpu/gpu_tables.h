/* Constant tables that kernels read in addition to tensors: chunks of packed
 * weights, rank trees, spans, head maps. All tables are in one allocation,
 * written once when the program is loaded. Tables with equal contents are
 * stored once. */
#ifndef DEVICE_GPU_GPU_TABLES_H
#define DEVICE_GPU_GPU_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_table {
    const void *key; /* identifies the table: a pointer into the program */
    /* contents of the table; usually the same pointer as `key` */
    const void *data;
    size_t bytes;
    size_t at; /* offset in bytes in the allocation of all tables */
};

struct gpu_tables {
    struct gpu_table *table; /* the tables, [n]; owned */
    int n, n_max;
    /* size in bytes of the allocation of all tables, set by gpu_tables_lay */
    size_t bytes;
    bool no_memory; /* out of memory: tables are missing */
};

void gpu_tables_free(struct gpu_tables *t);
/* Adds a table, or nothing if `bytes` is 0. `data` must stay valid until
 * gpu_tables_write was called. */
void gpu_tables_add(struct gpu_tables *t, const void *key, const void *data,
                    size_t bytes);
/* Assigns an offset to each table. */
void gpu_tables_lay(struct gpu_tables *t);
/* Writes the contents of all tables to out[t->bytes]. */
void gpu_tables_write(const struct gpu_tables *t, void *out);
/* Returns the offset of the table that was added with this key and size. */
size_t gpu_tables_at(const struct gpu_tables *t, const void *key, size_t bytes);

#endif
