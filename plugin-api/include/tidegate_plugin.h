/* Generated from plugin-api/src/abi.rs, whose first lines hold too:
 * nothing is freed by the other side; bytes are borrowed until the call returns; an instance stays on one
 * thread; `TidegateHost` may be called from any thread, `TidegateAnswer` only within its call. */

#ifndef TIDEGATE_PLUGIN_H
#define TIDEGATE_PLUGIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The version of this interface. It changes when a library that was built before cannot be used.
 */
#define TIDEGATE_ABI_VERSION 1

/*
 It is done: outputs that were pushed are delivered, together.
 */
#define TIDEGATE_OK 0

/*
 The attempt failed; `say` tells why. What happens next is for the step's retry policy.
 */
#define TIDEGATE_FAILED 1

/*
 Try again, when the retry policy says so.
 */
#define TIDEGATE_RETRY 2

/*
 Try again after the time that `delay` was given.
 */
#define TIDEGATE_RETRY_IN 3

/*
 Never try this job again.
 */
#define TIDEGATE_REJECT 4

/*
 The step cannot start anything now; the job keeps its place, and this was no attempt.
 */
#define TIDEGATE_GATE_CLOSED 5

/*
 An outside system finishes the job; `say` gives the handle that a monitor asks for.
 */
#define TIDEGATE_PENDING 6

/*
 The code panicked and was caught. The instance is destroyed, and a new one is created.
 */
#define TIDEGATE_PANICKED 7

/*
 Bytes of a token: hex digits.
 */
#define TIDEGATE_TOKEN_LEN 32

/*
 `flags` of a step: attempts can be seen from outside (it sends, writes or pays).
 */
#define TIDEGATE_HAS_EFFECTS 1

#define TIDEGATE_LOG_ERROR 1

#define TIDEGATE_LOG_WARN 2

#define TIDEGATE_LOG_INFO 3

#define TIDEGATE_LOG_DEBUG 4

#define TIDEGATE_LOG_TRACE 5

/*
 Borrowed bytes; texts are UTF-8 without a final zero. `bytes` may be null where `len` is 0.
 */
typedef struct TidegateBytes {
  const uint8_t *bytes;
  size_t len;
} TidegateBytes;

/*
 How one call answers, beside its status.
 */
typedef struct TidegateAnswer {
  /*
   `sizeof(TidegateAnswer)` of the runner.
   */
  size_t size;
  /*
   Handed to each function.
   */
  void *target;
  /*
   In `process`: adds an output (JSON) to the binding at this position, from 0. Returns
   `TIDEGATE_OK`, or `TIDEGATE_FAILED` where there is no such binding or where all outputs of the job
   together exceed `limits.memory`; the attempt fails then. A step without outputs drops what is pushed
   to binding 0.
   */
  int32_t (*push)(void *target, uint32_t binding, struct TidegateBytes payload);
  /*
   Why it is not done, the handle of a pending job, or (in `schema`) the schema. The last call counts.
   */
  void (*say)(void *target, struct TidegateBytes text);
  /*
   Where in the plugin's code it happened, from line 1; `column` may be 0.
   */
  void (*place)(void *target, struct TidegateBytes file, uint32_t line, uint32_t column);
  /*
   What stands beside the reason on an error queue: the circumstances, as JSON.
   */
  void (*context)(void *target, struct TidegateBytes json);
  /*
   How long to wait, for `TIDEGATE_RETRY_IN`.
   */
  void (*delay)(void *target, uint64_t delay_ms);
  /*
   Says what kind of failure it is, beside a status that is `TIDEGATE_FAILED`: `payload` (the job is not
   what it should be, and is not tried again), `limit`, `output`, `timeout`, `connection`, `http 503`,
   `exit 3`. Beside `TIDEGATE_RETRY` and `TIDEGATE_RETRY_IN` the last four count. Retry policies and error
   records know these words; another one says nothing. A runner whose `size` ends before this field does
   not have it.
   */
  void (*word)(void *target, struct TidegateBytes word);
} TidegateAnswer;

/*
 What the runner does for an instance at any time, from any thread.
 */
typedef struct TidegateHost {
  /*
   `sizeof(TidegateHost)` of the runner.
   */
  size_t size;
  /*
   Handed to each function.
   */
  const void *context;
  /*
   Writes to the runner's log, under the name of the plugin. `level` is a `TIDEGATE_LOG_…`.
   */
  void (*log)(const void *context, int32_t level, struct TidegateBytes text);
  /*
   1 when what runs should end soon: the attempt is past its timeout, or the instance is gone.
   */
  int32_t (*stopping)(const void *context);
  /*
   Keeps the host (and the library loaded) past `destroy`, for each call once, until `release`.
   */
  void (*retain)(const void *context);
  /*
   Gives back what `retain` took. The library stays loaded all the same where this comes after
   `destroy`, since the runner cannot know when the caller has left it.
   */
  void (*release)(const void *context);
  /*
   Writes the token of the job with this delivery hash to `token`, which has room for
   `TIDEGATE_TOKEN_LEN` bytes, without a final zero. An outside system shows it when it says what
   became of the job. Anything but `TIDEGATE_OK` says that there is none, and writes nothing. A runner
   whose `size` ends before this field does not have it.
   */
  int32_t (*token)(const void *context, uint64_t hash_high, uint64_t hash_low, uint8_t *token);
} TidegateHost;

/*
 What an instance is made from.
 */
typedef struct TidegateSetup {
  /*
   `sizeof(TidegateSetup)` of the runner.
   */
  size_t size;
  /*
   Valid until `destroy` returns, and beyond that for as long as it is retained.
   */
  const struct TidegateHost *host;
  struct TidegateBytes pipeline;
  struct TidegateBytes step;
  /*
   The step's `config`: a JSON object.
   */
  struct TidegateBytes config;
  /*
   The names of the step's outputs; one empty name for `to = "…"`, none for a step without `to`.
   */
  const struct TidegateBytes *bindings;
  size_t binding_count;
  /*
   How long an attempt may take, all processors of the step together; 0 for no limit.
   */
  uint64_t timeout_ms;
} TidegateSetup;

/*
 One job, as one attempt sees it.
 */
typedef struct TidegateJob {
  /*
   `sizeof(TidegateJob)` of the runner.
   */
  size_t size;
  /*
   JSON.
   */
  struct TidegateBytes payload;
  /*
   The job's place in its source or queue, from 1.
   */
  uint64_t index;
  /*
   The delivery hash (128 bits): the same on every attempt and after every restart.
   */
  uint64_t hash_high;
  uint64_t hash_low;
  /*
   Milliseconds since the Unix epoch.
   */
  int64_t now_ms;
  /*
   From 1.
   */
  uint32_t attempt;
  /*
   Which piece it is of those that processors before this one made of one job: 0 for the first one, and
   for a job that is whole. Index and attempt are those of the job; each piece has its own hash, and so
   its own token. A runner that knows no pieces says 0.
   */
  uint32_t piece;
} TidegateJob;

/*
 A step that a plugin offers. Functions must not be null unless it says so.
 */
typedef struct TidegateStep {
  struct TidegateBytes name;
  /*
   A line for people; may be empty.
   */
  struct TidegateBytes description;
  /*
   `TIDEGATE_HAS_EFFECTS`, or 0. A runner refuses bits that it does not know.
   */
  uint64_t flags;
  /*
   May be null: then any `config` will do. Says (`say`) the JSON Schema of the step's `config`. It
   must answer without having been set up, as a check does not run anything.
   */
  int32_t (*schema)(const struct TidegateAnswer *answer);
  /*
   Makes an instance, on each thread before its first job and again after a panic, and puts it into `*instance`, which the runner hands back and never looks
   into; it may be null. What `setup` points to is gone when the call returns, but for its `host`.
   On anything but `TIDEGATE_OK` nothing was made, and the reason is what it says. If no instance of the step
   was ever made in this run, the step stops; otherwise, and on `TIDEGATE_RETRY`, `TIDEGATE_RETRY_IN` and
   `TIDEGATE_GATE_CLOSED`, it waits, and `create` is called again.
   */
  int32_t (*create)(const struct TidegateSetup *setup,
                    const struct TidegateAnswer *answer,
                    void **instance);
  /*
   Runs one attempt on one job, pushes its outputs, and returns a status. Outputs of anything but
   `TIDEGATE_OK` are dropped.
   */
  int32_t (*process)(void *instance,
                     const struct TidegateJob *job,
                     const struct TidegateAnswer *answer);
  /*
   Ends an instance; it is not used again, whatever the status is. Threads that it started must
   have ended when this returns, or hold the host with `retain`.
   */
  int32_t (*destroy)(void *instance, const struct TidegateAnswer *answer);
} TidegateStep;

/*
 What a library is and offers.
 */
typedef struct TidegatePlugin {
  /*
   `TIDEGATE_ABI_VERSION`.
   */
  uint32_t abi_version;
  /*
   `sizeof(TidegatePlugin)`.
   */
  uint32_t size;
  struct TidegateBytes name;
  /*
   Its own version, for people.
   */
  struct TidegateBytes version;
  /*
   May be null. Called once after loading, before anything else is used; anything but
   `TIDEGATE_OK` refuses the library, with what it says as the reason.
   */
  int32_t (*init)(const struct TidegateAnswer *answer);
  /*
   `step_count` steps in a row, each `step_size` bytes after the one before.
   */
  const struct TidegateStep *steps;
  size_t step_count;
  /*
   `sizeof(TidegateStep)`.
   */
  size_t step_size;
} TidegatePlugin;

/*
 Whether a struct that the runner hands over has this field: a runner that is older than this header may not.
 Not needed for fields of the first version, which all but `token` of `TidegateHost` and `word` of
 `TidegateAnswer` are. `TIDEGATE_HAS(answer, word)`, with a pointer.
 */
#define TIDEGATE_HAS(pointer, field) \
  ((size_t)((const char *)&(pointer)->field - (const char *)(pointer)) + sizeof (pointer)->field \
   <= (pointer)->size)

#if defined(__GNUC__)
#define TIDEGATE_EXPORT __attribute__((visibility("default")))
#else
#define TIDEGATE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 What a plugin defines and exports, also where it is compiled with `-fvisibility=hidden`.
 */
TIDEGATE_EXPORT const struct TidegatePlugin *tidegate_plugin(void);

#ifdef __cplusplus
}
#endif

#endif  /* TIDEGATE_PLUGIN_H */
