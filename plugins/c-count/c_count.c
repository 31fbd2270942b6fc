/* Counts the bytes and the digits of each job: a plugin in C, made with
 *
 *     cc -shared -fPIC -O2 -I../../plugin-api/include -o libc_count.so c_count.c
 *
 * `run = "plugin:c_count"` gives {"bytes":…,"digits":…,"seen":…,"by":…} for each job, where `seen` counts the
 * jobs of this instance and `by` is its version. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate_plugin.h"

#ifndef VERSION
#define VERSION "1.0.0"
#endif

struct counter {
    const TidegateHost *host;
    uint64_t seen;
};

static TidegateBytes text(const char *of)
{
    TidegateBytes bytes = { (const uint8_t *)of, strlen(of) };
    return bytes;
}

static int32_t schema(const TidegateAnswer *answer)
{
    answer->say(answer->target, text("{\"type\":\"object\",\"additionalProperties\":false}"));
    return TIDEGATE_OK;
}

static int32_t create(const TidegateSetup *setup, const TidegateAnswer *answer, void **instance)
{
    struct counter *counter = calloc(1, sizeof *counter);
    if (counter == NULL) {
        answer->say(answer->target, text("there is no memory"));
        return TIDEGATE_FAILED;
    }
    counter->host = setup->host;
    counter->host->log(counter->host->context, TIDEGATE_LOG_DEBUG, text("counting"));
    *instance = counter;
    return TIDEGATE_OK;
}

static int32_t process(void *instance, const TidegateJob *job, const TidegateAnswer *answer)
{
    struct counter *counter = instance;
    size_t digits = 0;
    for (size_t at = 0; at < job->payload.len; at++)
        digits += job->payload.bytes[at] >= '0' && job->payload.bytes[at] <= '9';
    if (digits == 0) {
        answer->say(answer->target, text("the job has no digit"));
        return TIDEGATE_REJECT;
    }
    counter->seen++;
    char line[96];
    snprintf(line, sizeof line, "{\"bytes\":%zu,\"digits\":%zu,\"seen\":%llu,\"by\":\"" VERSION "\"}", job->payload.len, digits,
             (unsigned long long)counter->seen);
    return answer->push(answer->target, 0, text(line));
}

static int32_t destroy(void *instance, const TidegateAnswer *answer)
{
    (void)answer;
    free(instance);
    return TIDEGATE_OK;
}

static const TidegateStep steps[] = {
    {
        .name = { (const uint8_t *)"count", 5 },
        .description = { (const uint8_t *)"counts bytes and digits", 23 },
        .schema = schema,
        .create = create,
        .process = process,
        .destroy = destroy,
    },
};

static const TidegatePlugin plugin = {
    .abi_version = TIDEGATE_ABI_VERSION,
    .size = sizeof(TidegatePlugin),
    .name = { (const uint8_t *)"c-count", 7 },
    .version = { (const uint8_t *)VERSION, sizeof VERSION - 1 },
    .steps = steps,
    .step_count = 1,
    .step_size = sizeof(TidegateStep),
};

const TidegatePlugin *tidegate_plugin(void)
{
    return &plugin;
}
