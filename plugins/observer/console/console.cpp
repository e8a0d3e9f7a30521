// Implements the plugin `observer.console`: it shows a run's facts, steps and events on standard output.
#include "console_observer.hpp"
#include "prun/plugin.hpp"

PRUN_PLUGIN(observer, prun::console::ConsoleObserver, "console", "0.1.0",
            "One line a step on standard output", "also=stdout,terminal,print",
            "every | int | 1 | 1.. | Steps between lines; the first and the last step are always shown\n");
