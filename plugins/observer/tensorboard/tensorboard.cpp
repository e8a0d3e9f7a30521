// Implements the plugin `observer.tensorboard`: it writes a run as a file of events that TensorBoard shows.
#include "prun/plugin.hpp"
#include "tensorboard_observer.hpp"

PRUN_PLUGIN(observer, prun::tensorboard::TensorboardObserver, "tensorboard", "0.1.0",
            "Scalars in an event file for TensorBoard", "",
            "path | string | | | Folder for the event file; empty: tensorboard in the run's folder\n");
