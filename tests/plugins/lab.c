/* A plugin that does to its process what plugins should not do, as each job asks: `{"do":"WORD"}`. A job is
 * passed on. Files that it looks for and makes are in the working folder. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tidegate_plugin.h"

static const TidegateHost *told;
static int hangs_at_the_end;

static TidegateBytes text(const char *of)
{
    TidegateBytes bytes = { (const uint8_t *)of, strlen(of) };
    return bytes;
}

static void make(const char *file)
{
    close(open(file, O_CREAT | O_WRONLY, 0600));
}

static void wait_for(const char *file)
{
    while (access(file, F_OK) != 0)
        usleep(1000);
}

/* How often this was called, in all processes of the folder. */
static long count(const char *file)
{
    int to = open(file, O_CREAT | O_APPEND | O_WRONLY, 0600);
    if (write(to, "x", 1) != 1)
        exit(9);
    long calls = lseek(to, 0, SEEK_END);
    close(to);
    return calls;
}

/* A process that lives long, and writes its number to the file `started`. */
static void start(void)
{
    if (fork() == 0) {
        execl("/bin/sh", "sh", "-c", "echo $$ > starting; mv starting started; exec sleep 100", (char *)NULL);
        _exit(1);
    }
    wait_for("started");
}

static void *tell_later(void *unused)
{
    wait_for("go");
    told->log(told->context, TIDEGATE_LOG_WARN, text("logged by a thread"));
    make("told");
    return unused;
}

static int32_t create(const TidegateSetup *setup, const TidegateAnswer *answer, void **instance)
{
    (void)answer;
    *instance = NULL;
    told = setup->host;
    told->retain(told->context);
    return TIDEGATE_OK;
}

static int32_t process(void *instance, const TidegateJob *job, const TidegateAnswer *answer)
{
    (void)instance;
    char words[256] = { 0 };
    memcpy(words, job->payload.bytes, job->payload.len < 255 ? job->payload.len : 255);
#define IS(word) (strstr(words, "\"do\":\"" word "\"") != NULL)
    if (IS("abort"))
        abort();
    if (IS("abort_twice") && count("deaths") <= 2)
        abort();
    if (IS("abort_five_times") && count("deaths") <= 5)
        abort();
    if (IS("count_and_abort")) {
        count("deaths");
        abort();
    }
    if (IS("wait")) {
        make("running");
        wait_for("go");
    }
    if (IS("wait_and_abort") && access("spared", F_OK) != 0) {
        make("running");
        wait_for("go");
        abort();
    }
    if (IS("close_and_hang")) {
        close_range(3, ~0U, 0);
        for (;;)
            pause();
    }
    if (IS("shut_and_hang")) {
        for (int fd = 3; fd < 1024; fd++)
            shutdown(fd, SHUT_RDWR);
        for (;;)
            pause();
    }
    if (IS("stop"))
        raise(SIGSTOP);
    if (IS("exec"))
        execl("/bin/sleep", "sleep", "100", (char *)NULL);
    if (IS("start_and_hang")) {
        start();
        for (;;)
            pause();
    }
    if (IS("fork_and_abort")) {
        if (fork() == 0) {
            sleep(100);
            _exit(0);
        }
        abort();
    }
    if (IS("write_everywhere"))
        for (int fd = 3; fd < 1024; fd++)
            if (write(fd, "\1\1\1\1\1\1\1\1", 8) < 0)
                continue;
    if (IS("start_thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, tell_later, NULL);
    }
    if (IS("log_at_the_end"))
        hangs_at_the_end = 0;
    if (IS("hang_at_the_end"))
        hangs_at_the_end = 1;
    if (IS("move") && chdir("elsewhere") != 0)
        return TIDEGATE_FAILED;
    return answer->push(answer->target, 0, job->payload);
}

static int32_t destroy(void *instance, const TidegateAnswer *answer)
{
    (void)instance;
    (void)answer;
    told->log(told->context, TIDEGATE_LOG_WARN, text("logged at the end"));
    while (hangs_at_the_end)
        pause();
    return TIDEGATE_OK;
}

static const TidegateStep steps[] = {
    {
        .name = { (const uint8_t *)"lab", 3 },
        .create = create,
        .process = process,
        .destroy = destroy,
    },
};

static const TidegatePlugin plugin = {
    .abi_version = TIDEGATE_ABI_VERSION,
    .size = sizeof(TidegatePlugin),
    .name = { (const uint8_t *)"lab", 3 },
    .version = { (const uint8_t *)"1", 1 },
    .steps = steps,
    .step_count = 1,
    .step_size = sizeof(TidegateStep),
};

const TidegatePlugin *tidegate_plugin(void)
{
    return &plugin;
}
