// Reports what a resumed run takes from its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.hpp"

namespace prun {

// Says what a resumed run takes from the checkpoint, and what has changed since it was saved: a line each.
// `plugins` is from plugin_record().
std::vector<std::string> resume_notes(const Assembly& assembly, const LoadedCheckpoint& loaded,
                                      const std::string& plugins);

// Says what is wrong with the checkpoint, or with those that were to come before it.
std::vector<std::string> resume_warnings(const LoadedCheckpoint& loaded);

}  // namespace prun
