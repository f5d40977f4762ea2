/* Replaces tier_disk_read by -Wl,--wrap; mute_disk.h describes the function. */
#include "lib/mute_disk.h"

#include "server/tier_disk.h"

#include <pthread.h>

struct tier_entry *__real_tier_disk_read(const struct tier_disk *d,
                                         const struct tier_key *key, bool head,
                                         bool *damaged);
struct tier_entry *__wrap_tier_disk_read(const struct tier_disk *d,
                                         const struct tier_key *key, bool head,
                                         bool *damaged);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answers = PTHREAD_COND_INITIALIZER;
static bool is_mute;

void mute_disk(bool is)
{
    pthread_mutex_lock(&lock);
    is_mute = is;
    pthread_cond_broadcast(&answers);
    pthread_mutex_unlock(&lock);
}

struct tier_entry *__wrap_tier_disk_read(const struct tier_disk *d,
                                         const struct tier_key *key, bool head,
                                         bool *damaged)
{
    pthread_mutex_lock(&lock);
    while (is_mute)
        pthread_cond_wait(&answers, &lock);
    pthread_mutex_unlock(&lock);
    return __real_tier_disk_read(d, key, head, damaged);
}
