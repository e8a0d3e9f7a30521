/* What the library prun_parquet offers, in C: it and whoever loads it share no types of C++. Each call puts what is wrong into
   `trouble`, at most `room` bytes with the end, and fails then. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL where it fails. */
typedef void* (*prun_parquet_open)(const char* path, char* trouble, size_t room);
/* JSON lines, one a row: how many bytes it has put at `to`; 0 at the end; negative where it fails. */
typedef long (*prun_parquet_read)(void* rows, char* to, size_t count, char* trouble, size_t room);
typedef void (*prun_parquet_close)(void* rows);

#ifdef __cplusplus
}
#endif
