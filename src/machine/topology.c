/* Reads hwloc's tree of the machine once into three flat tables; afterwards
 * only the binding of memory uses hwloc. Two more sources limit what this
 * process may use: the affinity mask, and the files that available.c reads for
 * CPU time and memory. A source that is absent or malformed sets no limit. */
#include "machine/topology.h"

#include <hwloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "machine/available.h"

enum {
    ALIGN = 64,
    MAP_FROM = 1 << 20, /* size in bytes from which memory is allocated with
                           mmap, not malloc */
};

void topology_fini(struct topology *t)
{
    if (t->hw)
        hwloc_topology_destroy(t->hw);
    free(t->node);
    free(t->core);
    free(t->cpu);
    memset(t, 0, sizeof *t);
}

/* ---- filling the tables of nodes, cores, processors -------------------- */

/* Returns the NUMA node that has most memory among those whose cores include
 * processor `cpu`. If a processor has a small fast memory and a large one, this
 * is the large one. */
static hwloc_obj_t node_of(hwloc_topology_t hw, unsigned cpu)
{
    hwloc_obj_t o = NULL, best = NULL;

    while ((o = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_NUMANODE, o))) {
        if (!o->cpuset || !hwloc_bitmap_isset(o->cpuset, cpu))
            continue;
        if (!best ||
            o->attr->numanode.local_memory > best->attr->numanode.local_memory)
            best = o;
    }
    return best;
}

/* Returns the index in t->node of hwloc's node `o`, which is appended if it is
 * not there yet. */
static int take_node(struct topology *t, hwloc_obj_t o)
{
    int os = o ? (int)o->os_index : -1;

    for (int i = 0; i < t->n_node; i++)
        if (t->node[i].os == os)
            return i;
    t->node[t->n_node] = (struct topology_node){
        .os = os,
        .memory_bytes = o ? o->attr->numanode.local_memory : 0,
    };
    return t->n_node++;
}

static int by_node(const void *a, const void *b)
{
    const struct topology_cpu *x = a, *y = b;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->core != y->core) /* While this sorts, `core` is still hwloc's index
                               of the core. */
        return x->core < y->core ? -1 : 1;
    return x->os < y->os ? -1 : x->os > y->os;
}

/* Fills the tables of *t with the processors of the set `allowed`, or with all
 * processors that hwloc reports if `allowed` is NULL. */
static pl_status fill(struct topology *t, hwloc_const_bitmap_t allowed,
                      pl_err *err)
{
    int n_pu = hwloc_get_nbobjs_by_type(t->hw, HWLOC_OBJ_PU);
    size_t n = n_pu > 0 ? (size_t)n_pu : 1;
    hwloc_obj_t o = NULL;

    t->node = calloc(n, sizeof *t->node);
    t->core = calloc(n, sizeof *t->core);
    t->cpu = calloc(n, sizeof *t->cpu);
    if (!t->node || !t->core || !t->cpu)
        return err_no_memory(err, "the machine's topology");
    while ((o = hwloc_get_next_obj_by_type(t->hw, HWLOC_OBJ_PU, o))) {
        hwloc_obj_t core =
            hwloc_get_ancestor_obj_by_type(t->hw, HWLOC_OBJ_CORE, o);

        if (allowed && !hwloc_bitmap_isset(allowed, o->os_index))
            continue;
        t->cpu[t->n_cpu++] = (struct topology_cpu){
            .os = (int)o->os_index,
            .node = take_node(t, node_of(t->hw, o->os_index)),
            /* On a machine that reports no cores, each processor counts as a
             * core. */
            .core = core ? (int)core->logical_index : (int)o->logical_index,
        };
    }
    if (t->n_cpu == 0)
        return err_set(
            err, PL_DEVICE,
            "this process may not use any processor that hwloc knows; check "
            "its affinity mask (taskset -p) and cpuset");
    qsort(t->cpu, (size_t)t->n_cpu, sizeof *t->cpu, by_node);
    for (int i = 0, last = -1; i < t->n_cpu; i++) {
        struct topology_cpu *c = &t->cpu[i];

        if (t->n_core == 0 || c->core != last ||
            c->node != t->core[t->n_core - 1].node) {
            t->core[t->n_core++] =
                (struct topology_core){.os = c->os, .node = c->node};
            t->node[c->node].n_core++;
        }
        last = c->core;
        c->core = t->n_core - 1;
    }
    t->n_core_quota = t->n_core;
    for (int i = 0; i < t->n_node; i++) {
        t->node[i].available_bytes = t->node[i].memory_bytes;
        t->memory_bytes += t->node[i].memory_bytes;
    }
    t->available_bytes = t->memory_bytes;
    return PL_OK;
}

/* ---- memory and CPU time that may be used ---------------------------- */

/* Raises the memory of a single NUMA node to the total memory of the system,
 * because a virtual machine that got more memory at run time may report it only
 * in the total. */
static void read_memory(struct topology *t)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all;

    if (t->n_node != 1 || pages <= 0 || page <= 0 || !topology_one_node())
        return;
    all = (uint64_t)pages * (uint64_t)page;
    if (t->memory_bytes < all)
        t->memory_bytes = t->node[0].memory_bytes = all;
}

static uint64_t within(uint64_t bytes, uint64_t most)
{
    return bytes < most ? bytes : most;
}

/* Returns the available bytes, at most `all`. Returns 1 instead of 0 unless
 * `all` is 0, because 0 available bytes would mean unknown. */
static uint64_t part_of(uint64_t available, uint64_t all)
{
    return all > 0 && available == 0 ? 1 : within(available, all);
}

static pl_status read_stated(struct topology *t, const char *text, pl_err *err)
{
    char shown[ERR_SHOWN];
    uint64_t all, available, n = (uint64_t)t->n_node;

    if (!available_stated(text, &all, &available) || all < n)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "PLAIT_MEMORY=%s: not a memory size; give the total and, after a "
            "colon, what is available, as in 16GiB:12GiB",
            err_shown(shown, text, strlen(text)));
    t->memory_bytes = all;
    t->available_bytes = available;
    for (int i = 0; i < t->n_node; i++) {
        t->node[i].memory_bytes = all / n;
        t->node[i].available_bytes = part_of(available / n, all / n);
    }
    return PL_OK;
}

/* Returns the part of `most` bytes, a limit for all NUMA nodes together, that a
 * node with x bytes gets. `sum` is the bytes of all nodes. The part is x if the
 * sum does not exceed the limit. Otherwise the limit is divided in proportion,
 * so that devices on two nodes do not each plan with all of it. */
static uint64_t share_of(uint64_t x, uint64_t sum, uint64_t most)
{
    return sum > most ? (uint64_t)((double)x / (double)sum * (double)most) : x;
}

/* Computes the bytes of memory that this process may use on each NUMA node and
 * on all nodes together, within the limits in *now. */
static void take_memory(struct topology *t, const struct available *now,
                        const struct available_node *node)
{
    uint64_t all = 0, sum = 0;

    read_memory(t);
    for (int i = 0; i < t->n_node; i++) {
        struct topology_node *x = &t->node[i];

        /* If there is only one NUMA node, its available memory is that of the
         * system, which is known more accurately. */
        x->available_bytes =
            t->n_node == 1 ? x->memory_bytes
                           : within(node[i].available_bytes, x->memory_bytes);
        all += x->memory_bytes;
        sum += x->available_bytes;
    }
    t->memory_bytes = within(all, now->limit_bytes);
    if (all > 0 && t->memory_bytes == 0)
        t->memory_bytes = 1;
    t->available_bytes =
        part_of(within(sum, now->available_bytes), t->memory_bytes);
    for (int i = 0; i < t->n_node; i++) {
        struct topology_node *x = &t->node[i];

        x->memory_bytes = share_of(x->memory_bytes, all, t->memory_bytes);
        x->available_bytes =
            part_of(share_of(x->available_bytes, sum, t->available_bytes),
                    x->memory_bytes);
    }
}

static pl_status read_limits(struct topology *t, pl_err *err)
{
    const char *stated = getenv("PLAIT_MEMORY");
    struct available_node *node = calloc((size_t)t->n_node, sizeof *node);
    struct available now;
    pl_status s;

    if (!node)
        return err_no_memory(err, "the machine's topology");
    for (int i = 0; i < t->n_node; i++)
        node[i].os = t->node[i].os;
    s = available_read(&now, node, t->n_node, NULL, NULL, err);
    if (s == PL_OK) {
        t->n_core_quota = now.n_core < t->n_core ? now.n_core : t->n_core;
        take_memory(t, &now, node);
    }
    free(node);
    return s == PL_OK && stated && *stated ? read_stated(t, stated, err) : s;
}

/* ---- loading the topology by hwloc ------------------------------------- */

static pl_status refuse_order(const char *name, const char *value,
                              const char *why, pl_err *err)
{
    char shown[ERR_SHOWN];

    return err_set(err, PL_DEVICE, "%s=%s: %s; unset this hwloc variable", name,
                   err_shown(shown, value, strlen(value)), why);
}

/* Returns true if hwloc has a component `name`, an item of the environment
 * variable HWLOC_COMPONENTS. hwloc offers no other test than to blacklist the
 * component, which is done in the topology `scratch`. */
static bool is_component(hwloc_topology_t scratch, const char *name)
{
    const char *xml = getenv("HWLOC_XMLFILE");

    if (strcmp(name, "xml") == 0)
        return xml && hwloc_topology_set_xml(scratch, xml) == 0;
    return strcmp(name, "synthetic") != 0 &&
           hwloc_topology_set_components(
               scratch, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name) == 0;
}

static pl_status check_components(const char *list, pl_err *err)
{
    hwloc_topology_t scratch;
    pl_status s = PL_OK;

    if (hwloc_topology_init(&scratch) != 0)
        return err_no_memory(err, "the machine's topology");
    while (*list && s == PL_OK) {
        size_t n = strcspn(list, ",");
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), list);
        if (strcmp(name, "stop") == 0)
            break;
        if (n > 0 && name[0] != '-' && !is_component(scratch, name))
            s = refuse_order("HWLOC_COMPONENTS", name,
                             "hwloc has no such component", err);
        list += n + (list[n] == ',');
    }
    hwloc_topology_destroy(scratch);
    return s;
}

/* Rejects values of HWLOC_* environment variables that hwloc cannot follow,
 * because it would print to standard error or wait for ever. Otherwise hwloc
 * prints only on request (*_VERBOSE), or if the firmware of the machine
 * contradicts itself; HWLOC_HIDE_ERRORS=2 prevents the latter. */
static pl_status check_orders(pl_err *err)
{
    const char *components = getenv("HWLOC_COMPONENTS");
    const char *cpuid = getenv("HWLOC_CPUID_PATH");
    const char *xml = getenv("HWLOC_XMLFILE");
    struct stat st;

    if (cpuid)
        return refuse_order("HWLOC_CPUID_PATH", cpuid,
                            "it describes another processor", err);
    if (xml && stat(xml, &st) == 0 && !S_ISREG(st.st_mode))
        return refuse_order("HWLOC_XMLFILE", xml, "not a regular file", err);
    if (components)
        PL_TRY(check_components(components, err));
    return PL_OK;
}

/* Makes hwloc load the file that HWLOC_XMLFILE names, and fails if hwloc cannot
 * read it. Without this function hwloc would silently describe this machine
 * instead. A file that does not exist is ignored, as hwloc ignores it. */
static pl_status follow_xml(hwloc_topology_t hw, pl_err *err)
{
    const char *xml = getenv("HWLOC_XMLFILE");

    if (!xml || getenv("HWLOC_COMPONENTS") || access(xml, F_OK) != 0 ||
        hwloc_topology_set_xml(hw, xml) == 0)
        return PL_OK;
    return refuse_order("HWLOC_XMLFILE", xml, "hwloc cannot read it", err);
}

static pl_status load(struct topology *t, const char *desc, const char *allowed,
                      pl_err *err)
{
    pl_status s;
    hwloc_bitmap_t set = NULL;

    memset(t, 0, sizeof *t);
    if (hwloc_topology_init(&t->hw) != 0) {
        t->hw = NULL;
        return err_no_memory(err, "the machine's topology");
    }
    s = check_orders(err);
    if (s != PL_OK)
        goto done;
    if (desc && hwloc_topology_set_synthetic(t->hw, desc) != 0) {
        s = err_set(err, PL_BAD_ARGUMENT,
                    "\"%s\" is not a synthetic hwloc topology; one is \"numa:2 "
                    "core:4 pu:1\"",
                    desc);
        goto done;
    }
    s = desc ? PL_OK : follow_xml(t->hw, err);
    if (s != PL_OK)
        goto done;
    if (hwloc_topology_load(t->hw) != 0) {
        const char *xml = getenv("HWLOC_XMLFILE");

        s = xml ? refuse_order("HWLOC_XMLFILE", xml, "hwloc cannot read it",
                               err)
                : err_set(err, PL_DEVICE,
                          "hwloc cannot read this machine's topology; check "
                          "the environment variables HWLOC_*");
        goto done;
    }
    /* false if environment variables make hwloc describe another machine */
    t->here = hwloc_topology_is_thissystem(t->hw);
    set = hwloc_bitmap_alloc();
    if (!set) {
        s = err_no_memory(err, "the machine's topology");
        goto done;
    }
    /* An empty set means that the affinity mask could not be read. Then all
     * processors are used. */
    if (allowed)
        hwloc_bitmap_list_sscanf(set, allowed);
    else if (t->here &&
             hwloc_get_cpubind(t->hw, set, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_zero(set);
    s = fill(t, hwloc_bitmap_iszero(set) ? NULL : set, err);
    if (s == PL_OK && t->here)
        s = read_limits(t, err);
done:
    if (set)
        hwloc_bitmap_free(set);
    if (s != PL_OK)
        topology_fini(t);
    return s;
}

pl_status topology_load(struct topology *t, pl_err *err)
{
    return load(t, NULL, NULL, err);
}

pl_status topology_load_synthetic(struct topology *t, const char *desc,
                                  const char *allowed, pl_err *err)
{
    return load(t, desc, allowed, err);
}

/* ---- reference counts of shared topologies ------------------------------ */

/* A topology that is shared, with the number of its references. Users have the
 * address of `t`. */
struct counted {
    struct topology t;
    atomic_int n;
};

pl_status topology_open(const struct topology **out, pl_err *err)
{
    struct counted *c = calloc(1, sizeof *c);
    pl_status s;

    *out = NULL;
    if (!c)
        return err_no_memory(err, "the machine's topology");
    s = topology_load(&c->t, err);
    if (s != PL_OK) {
        free(c);
        return s;
    }
    atomic_init(&c->n, 1);
    *out = &c->t;
    return PL_OK;
}

const struct topology *topology_keep(const struct topology *t)
{
    if (t)
        atomic_fetch_add(&((struct counted *)t)->n, 1);
    return t;
}

void topology_drop(const struct topology *t)
{
    struct counted *c = (struct counted *)t;

    if (!c || atomic_fetch_sub(&c->n, 1) > 1)
        return;
    topology_fini(&c->t);
    free(c);
}

/* ---- looking up and listing processors ---------------------------------- */

int topology_find_cpu(const struct topology *t, int os)
{
    for (int i = 0; i < t->n_cpu; i++)
        if (t->cpu[i].os == os)
            return i;
    return -1;
}

void topology_list_cpus(const struct topology *t, char *buf, size_t size)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    snprintf(buf, size, "?");
    if (!set)
        return;
    for (int i = 0; i < t->n_cpu; i++)
        hwloc_bitmap_set(set, (unsigned)t->cpu[i].os);
    hwloc_bitmap_list_snprintf(buf, size, set);
    hwloc_bitmap_free(set);
}

/* ---- allocating memory ------------------------------------------------- */

/* Reads /sys/devices/system/node/online, which lists the NUMA nodes as "0", or
 * as a list or range such as "0-1". If it cannot be read, assumes one node. */
bool topology_one_node(void)
{
    FILE *f = fopen("/sys/devices/system/node/online", "re");
    char list[16] = "";
    bool one = true;

    if (!f)
        return true;
    if (fgets(list, sizeof list, f))
        one = !strpbrk(list, "-,");
    fclose(f);
    return one;
}

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (bytes / page + 1) * page;
}

/* Requests huge pages only for a size of MAP_FROM or more, because smaller
 * memory would get none. */
void *topology_alloc_pages(const struct topology *t, int os, size_t bytes)
{
    size_t all = whole_pages(bytes);
    void *p = mmap(NULL, all, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= MAP_FROM)
        madvise(p, all, MADV_HUGEPAGE);
    /* A forked child gets no mapping of this memory. Otherwise each page
     * written after the fork would be copied. */
    madvise(p, all, MADV_DONTFORK);
    if (t && t->here && os >= 0) {
        hwloc_obj_t o = hwloc_get_numanode_obj_by_os_index(t->hw, (unsigned)os);

        if (o)
            hwloc_set_area_membind(t->hw, p, all, o->nodeset,
                                   HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
    }
    return p;
}

void topology_free_pages(void *p, size_t bytes)
{
    if (p)
        munmap(p, whole_pages(bytes));
}

/* Allocates blocks below MAP_FROM with malloc. These share pages with other
 * data, so they are neither bound to a NUMA node nor in huge pages. */
void *topology_alloc(const struct topology *t, int os, size_t bytes)
{
    void *p;

    if (bytes >= MAP_FROM)
        return topology_alloc_pages(t, os, bytes);
    if (posix_memalign(&p, ALIGN, bytes > 0 ? bytes : ALIGN) != 0)
        return NULL;
    memset(p, 0, bytes);
    return p;
}

void topology_free(void *p, size_t bytes)
{
    if (bytes >= MAP_FROM)
        topology_free_pages(p, bytes);
    else
        free(p);
}

void topology_free_copy(void *p, size_t bytes)
{
    if (bytes < MAP_FROM)
        free(p);
}

void *topology_share(size_t bytes)
{
    void *p = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void topology_unshare(void *p, size_t bytes)
{
    if (p)
        munmap(p, whole_pages(bytes));
}

void topology_fetch(const void *p, size_t bytes)
{
#ifdef MADV_POPULATE_READ
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p & ~(page - 1);

    if (bytes > 0)
        madvise((void *)from, (uintptr_t)p + bytes - from, MADV_POPULATE_READ);
#else
    (void)p;
    (void)bytes;
#endif
}
