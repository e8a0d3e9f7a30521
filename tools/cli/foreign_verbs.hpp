// Verbs of third parties: an executable prun-VERB in a folder of PATH is called by `prun VERB`, as git does
// it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

// The first prun-VERB on the path that may be executed. A verb is lower-case letters, digits and dashes, and
// none of prun's own.
std::optional<std::filesystem::path> foreign_verb(std::string_view verb);

// All that can be called, by their verbs, in alphabetical order.
std::vector<std::string> foreign_verbs();

// Becomes it, where the first argument is such a verb and not a file here. What follows is its own to read;
// it finds the prun that called it in the environment, as PRUN.
void become_foreign_verb(int argc, char** argv);

}  // namespace prun
