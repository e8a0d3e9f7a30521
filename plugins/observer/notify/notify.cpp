// Implements the plugin `observer.notify`: it runs a command when a run ends or fails.
#include "notify_observer.hpp"
#include "prun/plugin.hpp"

PRUN_PLUGIN(observer, prun::notify::NotifyObserver, "notify", "0.1.0",
            "Runs a command when the run ends, with or without an error", "",
            "command | string | required | | Command for /bin/sh; PRUN_EVENT (finished, stopped, failed, "
            "died), PRUN_MESSAGE, PRUN_NAME, PRUN_FOLDER, PRUN_STEP and PRUN_LOSS describe the event\n");
