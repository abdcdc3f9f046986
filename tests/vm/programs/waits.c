// Calls that are off the CPU for a known reason: one sleeps, one waits for another thread, one is kept from its CPU by another.
#include <pthread.h>
#include <time.h>

#include "count.h"

#define ROUNDS 5

COUNTED(sleeps);
COUNTED(waits);
COUNTED(spins);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t handed_over = PTHREAD_COND_INITIALIZER;
static int turn, is_waiting;
static volatile long sink;

static void nap(long ms)
{
    struct timespec time = { 0, ms * 1000000 };
    nanosleep(&time, NULL);
}

NI void sleeps(void)
{
    ENTER(sleeps);
    nap(40);
    LEAVE(sleeps);
}

NI void waits(int until)
{
    ENTER(waits);
    pthread_mutex_lock(&mutex);
    while (turn < until) {
        is_waiting = 1;
        pthread_cond_wait(&handed_over, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    LEAVE(waits);
}

// Longer than a thread may run while another one wants to.
NI void spins(void)
{
    ENTER(spins);
    for (int i = 0; i < 8000; i++)
        sink++;
    LEAVE(spins);
}

// The main thread is off its CPU until something wakes it.
static int main_thread_is_blocked(void)
{
    char state = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        abort();
    fclose(file);
    return state == 'S';
}

static void *hand_over(void *unused)
{
    while (turn < ROUNDS) {
        nap(10);
        pthread_mutex_lock(&mutex);
        // Each call waits, however slow the machine is: who is only about to wait has nothing to be woken from.
        if (is_waiting && main_thread_is_blocked()) {
            is_waiting = 0;
            turn++;
            pthread_cond_signal(&handed_over);
        }
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *spin(void *unused)
{
    spins();
    return unused;
}

int main(void)
{
    pthread_t other, spinners[2];
    for (int i = 0; i < ROUNDS; i++)
        sleeps();
    if (pthread_create(&other, NULL, hand_over, NULL))
        return 1;
    for (int i = 1; i <= ROUNDS; i++)
        waits(i);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&spinners[i], NULL, spin, NULL))
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(spinners[i], NULL);
    PRINT(sleeps);
    PRINT(waits);
    PRINT(spins);
    return 0;
}
