// Implements the plugin `observer.wandb`: it writes a run as a folder that `wandb sync` uploads.
#include "prun/plugin.hpp"
#include "wandb_observer.hpp"

PRUN_PLUGIN(observer, prun::wandb::WandbObserver, "wandb", "0.1.0",
            "An offline run of Weights & Biases, for wandb sync and wandb leet", "",
            "path    | string |      | | Folder for offline runs; empty: wandb in the run's folder\n"
            "project | string | prun | | Project that the run is synced to\n");
