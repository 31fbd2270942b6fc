/* The interface of plugins as it was before hosts had tokens: libraries that were built with it still work. */

#ifndef TIDEGATE_PLUGIN_H
#define TIDEGATE_PLUGIN_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#define TIDEGATE_ABI_VERSION 1
#define TIDEGATE_OK 0
#define TIDEGATE_FAILED 1
#define TIDEGATE_RETRY 2
#define TIDEGATE_RETRY_IN 3
#define TIDEGATE_REJECT 4
#define TIDEGATE_GATE_CLOSED 5
#define TIDEGATE_PENDING 6
#define TIDEGATE_PANICKED 7
#define TIDEGATE_HAS_EFFECTS 1
#define TIDEGATE_LOG_ERROR 1
#define TIDEGATE_LOG_WARN 2
#define TIDEGATE_LOG_INFO 3
#define TIDEGATE_LOG_DEBUG 4
#define TIDEGATE_LOG_TRACE 5
typedef struct TidegateBytes {
  const uint8_t *bytes;
  size_t len;
} TidegateBytes;
typedef struct TidegateAnswer {
  size_t size;
  void *target;
  int32_t (*push)(void *target, uint32_t binding, struct TidegateBytes payload);
  void (*say)(void *target, struct TidegateBytes text);
  void (*place)(void *target, struct TidegateBytes file, uint32_t line, uint32_t column);
  void (*context)(void *target, struct TidegateBytes json);
  void (*delay)(void *target, uint64_t delay_ms);
} TidegateAnswer;
typedef struct TidegateHost {
  size_t size;
  const void *context;
  void (*log)(const void *context, int32_t level, struct TidegateBytes text);
  int32_t (*stopping)(const void *context);
  void (*retain)(const void *context);
  void (*release)(const void *context);
} TidegateHost;
typedef struct TidegateSetup {
  size_t size;
  const struct TidegateHost *host;
  struct TidegateBytes pipeline;
  struct TidegateBytes step;
  struct TidegateBytes config;
  const struct TidegateBytes *bindings;
  size_t binding_count;
  uint64_t timeout_ms;
} TidegateSetup;
typedef struct TidegateJob {
  size_t size;
  struct TidegateBytes payload;
  uint64_t index;
  uint64_t hash_high;
  uint64_t hash_low;
  int64_t now_ms;
  uint32_t attempt;
  uint32_t reserved;
} TidegateJob;
typedef struct TidegateStep {
  struct TidegateBytes name;
  struct TidegateBytes description;
  uint64_t flags;
  int32_t (*schema)(const struct TidegateAnswer *answer);
  int32_t (*create)(const struct TidegateSetup *setup,
                    const struct TidegateAnswer *answer,
                    void **instance);
  int32_t (*process)(void *instance,
                     const struct TidegateJob *job,
                     const struct TidegateAnswer *answer);
  int32_t (*destroy)(void *instance, const struct TidegateAnswer *answer);
} TidegateStep;
typedef struct TidegatePlugin {
  uint32_t abi_version;
  uint32_t size;
  struct TidegateBytes name;
  struct TidegateBytes version;
  int32_t (*init)(const struct TidegateAnswer *answer);
  const struct TidegateStep *steps;
  size_t step_count;
  size_t step_size;
} TidegatePlugin;
#endif
#ifdef __cplusplus
extern "C"
#endif
const struct TidegatePlugin *tidegate_plugin(void);
