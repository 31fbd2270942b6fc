/* C header: declares the plugin interface of Tidegate. Generated from plugin-api/src/abi.rs.
 * Neither side frees memory of the other. Bytes are borrowed until the call returns.
 * An instance stays on one thread. `TidegateHost` may be called from any thread,
 * `TidegateAnswer` only within its call. */

#ifndef TIDEGATE_PLUGIN_H
#define TIDEGATE_PLUGIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The version of this interface. It changes when older libraries become unusable.
 */
#define TIDEGATE_ABI_VERSION 1

/*
 The attempt succeeded: the pushed outputs are delivered, together.
 */
#define TIDEGATE_OK 0

/*
 The attempt failed; `say` gives the reason. The step's retry policy decides on a retry.
 */
#define TIDEGATE_FAILED 1

/*
 Retry, by the retry policy.
 */
#define TIDEGATE_RETRY 2

/*
 Retry after the time given to `delay`.
 */
#define TIDEGATE_RETRY_IN 3

/*
 Never retry this job.
 */
#define TIDEGATE_REJECT 4

/*
 The step cannot start jobs now; the job keeps its place, and this was no attempt.
 */
#define TIDEGATE_GATE_CLOSED 5

/*
 The job is pending in an external system; `say` gives the handle that a monitor asks for.
 */
#define TIDEGATE_PENDING 6

/*
 The code panicked, and the panic was caught. The instance is destroyed, and a new one is created.
 */
#define TIDEGATE_PANICKED 7

/*
 The step stops at this job, which stays where it is until the step starts again.
 */
#define TIDEGATE_HALT 8

/*
 Bytes of a token: hex digits.
 */
#define TIDEGATE_TOKEN_LEN 32

/*
 `flags` of a step: attempts have external effects (they send, write or pay).
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
 The answer of one call, in addition to its status.
 */
typedef struct TidegateAnswer {
  /*
   `sizeof(TidegateAnswer)` of the runner.
   */
  size_t size;
  /*
   The first argument of each function.
   */
  void *target;
  /*
   In `process`: adds an output (JSON) to the binding at this position, from 0. Returns `TIDEGATE_OK`. It
   returns `TIDEGATE_FAILED` if the binding does not exist, or the outputs of the job together exceed
   `limits.memory`; the attempt then fails. A step without outputs drops the outputs of binding 0.
   */
  int32_t (*push)(void *target, uint32_t binding, struct TidegateBytes payload);
  /*
   The reason of a failure, the handle of a pending job, or (in `schema`) the schema. The last call
   counts.
   */
  void (*say)(void *target, struct TidegateBytes text);
  /*
   The place in the plugin's code, from line 1; `column` may be 0.
   */
  void (*place)(void *target, struct TidegateBytes file, uint32_t line, uint32_t column);
  /*
   The circumstances of a failure as JSON, which are stored beside the reason on the error queue.
   */
  void (*context)(void *target, struct TidegateBytes json);
  /*
   The delay for `TIDEGATE_RETRY_IN`.
   */
  void (*delay)(void *target, uint64_t delay_ms);
  /*
   The class of a failure, in addition to the status `TIDEGATE_FAILED`: `payload` (the job is invalid,
   and is not retried), `limit`, `output`, `timeout`, `connection`, `http 503`, `exit 3`. With
   `TIDEGATE_RETRY` and `TIDEGATE_RETRY_IN` only the last four count. Retry policies and error records
   use these words; another word has no effect. A runner whose `size` ends before this field does not
   have it.
   */
  void (*word)(void *target, struct TidegateBytes word);
} TidegateAnswer;

/*
 The runner's services for an instance, at any time and from any thread.
 */
typedef struct TidegateHost {
  /*
   `sizeof(TidegateHost)` of the runner.
   */
  size_t size;
  /*
   The first argument of each function.
   */
  const void *context;
  /*
   Writes to the runner's log, under the name of the plugin. `level` is a `TIDEGATE_LOG_…`.
   */
  void (*log)(const void *context, int32_t level, struct TidegateBytes text);
  /*
   1 if running code should end soon: the attempt is past its timeout, or the instance is gone.
   */
  int32_t (*stopping)(const void *context);
  /*
   Keeps the host (and the library loaded) past `destroy`; each call needs one `release`.
   */
  void (*retain)(const void *context);
  /*
   Releases one `retain`. After `destroy` the library stays loaded nevertheless, since the runner cannot
   know when the caller has left its code.
   */
  void (*release)(const void *context);
  /*
   Writes the token of the job with this delivery hash to `token`, which has space for
   `TIDEGATE_TOKEN_LEN` bytes, without a final zero. An external system sends it with the completion of
   the job. On any status except `TIDEGATE_OK` no token exists, and nothing is written. A runner whose
   `size` ends before this field does not have it.
   */
  int32_t (*token)(const void *context, uint64_t hash_high, uint64_t hash_low, uint8_t *token);
} TidegateHost;

/*
 The setup of an instance.
 */
typedef struct TidegateSetup {
  /*
   `sizeof(TidegateSetup)` of the runner.
   */
  size_t size;
  /*
   Valid until `destroy` returns, and longer while it is retained.
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
   Maximum time of an attempt, for all processors of the step together; 0 for no limit.
   */
  uint64_t timeout_ms;
} TidegateSetup;

/*
 One job in one attempt.
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
   The number of this piece among those that earlier processors made from one job: 0 for the first one,
   and for a whole job. Index and attempt are those of the job. Each piece has its own hash, and so its
   own token. A runner without pieces passes 0.
   */
  uint32_t piece;
} TidegateJob;

/*
 A step of a plugin. Functions must not be null unless documented.
 */
typedef struct TidegateStep {
  struct TidegateBytes name;
  /*
   One line for people; may be empty.
   */
  struct TidegateBytes description;
  /*
   `TIDEGATE_HAS_EFFECTS`, or 0. A runner refuses unknown bits.
   */
  uint64_t flags;
  /*
   May be null: then any `config` is valid. Returns (with `say`) the JSON Schema of the step's `config`.
   It must work without a setup, since a check runs no code of the step.
   */
  int32_t (*schema)(const struct TidegateAnswer *answer);
  /*
   Creates an instance, on each thread before its first job and again after a panic, and stores it in
   `*instance`. The runner passes the pointer back and never dereferences it; it may be null. `setup` and
   its contents are valid only during the call, except for its `host`. On any status except `TIDEGATE_OK`
   no instance was created, and the text of `say` is the reason. If no instance of the step was ever
   created in this run, the step stops. Otherwise, and on `TIDEGATE_RETRY`, `TIDEGATE_RETRY_IN` and
   `TIDEGATE_GATE_CLOSED`, it waits, and `create` is called again.
   */
  int32_t (*create)(const struct TidegateSetup *setup,
                    const struct TidegateAnswer *answer,
                    void **instance);
  /*
   Runs one attempt on one job, pushes its outputs, and returns a status. On any status except
   `TIDEGATE_OK` the outputs are dropped.
   */
  int32_t (*process)(void *instance,
                     const struct TidegateJob *job,
                     const struct TidegateAnswer *answer);
  /*
   Ends an instance; it is not used again, with any status. Threads that it started must have ended when
   this returns, or hold the host with `retain`.
   */
  int32_t (*destroy)(void *instance, const struct TidegateAnswer *answer);
} TidegateStep;

/*
 The description of a library.
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
   May be null. Called once after loading, before any other function. Any status except `TIDEGATE_OK`
   refuses the library, with the text of `say` as the reason.
   */
  int32_t (*init)(const struct TidegateAnswer *answer);
  /*
   `step_count` steps in an array, each `step_size` bytes after the one before.
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
 The function that a plugin defines and exports, also if it is compiled with `-fvisibility=hidden`.
 */
TIDEGATE_EXPORT const struct TidegatePlugin *tidegate_plugin(void);

#ifdef __cplusplus
}
#endif

#endif  /* TIDEGATE_PLUGIN_H */
