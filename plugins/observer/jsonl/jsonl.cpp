// Implements the plugin `observer.jsonl`: it writes a run as JSON lines in a file.
#include "jsonl_observer.hpp"
#include "prun/plugin.hpp"

PRUN_PLUGIN(
    observer, prun::jsonl::JsonlObserver, "jsonl", "0.1.0", "Events as JSON lines in a file",
    "log=yes; also=json",
    "path | string | | | File to append to; empty: log.jsonl in the run's folder\n"
    "flush_seconds | float | 5 | 0..3600 | Maximum seconds between flushes to disk while steps run\n");
